//! Convolutions along a sequence.

use meshwright_backend::ops::convolution::{CausalConvArgs, CausalConvWeightGradArgs, Neighbors};
use meshwright_backend::{CausalConvShape, DType, LeafGrad, PositionRange, UnfoldShape};

use crate::{FLOATS, Operand, Target, values};

/// Samples, positions of both ranges, channels and taps: one range and two, ranges shorter than the taps, channels that
/// are vectors or not, taps of several groups.
const SIZES: [[usize; 5]; 12] = [
    [0, 4, 0, 8, 3],
    [2, 0, 0, 8, 3],
    [2, 3, 2, 0, 4],
    [1, 1, 0, 1, 1],
    [2, 5, 0, 7, 4],
    [2, 5, 3, 16, 4],
    [1, 2, 9, 8, 6],
    [3, 1, 1, 33, 3],
    [2, 40, 0, 24, 4],
    [1, 3, 0, 64, 9],
    [1, 70, 30, 5, 2],
    [4, 130, 0, 40, 5],
];

/// Rows for several threads of a CPU.
const LARGE: [[usize; 5]; 1] = [[2, 150, 50, 64, 4]];

/// Operands of a convolution.
struct Case {
    shape: CausalConvShape,
    x: Operand,
    dy: Operand,
    weight: Operand,
    /// Elements before each range of `x`, and behind each range of `dy`.
    halos: Option<[Operand; 2]>,
    /// Numbers of `x` and its halos, and of `dy` and its halos.
    numbers: [[Vec<f64>; 2]; 2],
    /// Limits on both sides: documents of at most 3 positions.
    limits: Option<[Vec<u32>; 2]>,
}

impl Case {
    fn new(
        target: &Target,
        dtype: DType,
        [batch, first, second, channels, taps]: [usize; 5],
        (has_halos, has_limits): (bool, bool),
    ) -> Case {
        let ranges = [(first, 5), (second, 2 * first + 11)];
        let ranges = ranges.map(|(len, start)| PositionRange { len, start });
        let shape = CausalConvShape { batch, ranges, channels, taps };
        let halo = |seed| target.floats(dtype, &values(shape.halo_elements(), seed));
        let positions =
            || ranges.into_iter().flat_map(|range| range.start..range.start + range.len);
        let limits = |limit: fn(usize) -> usize| -> Vec<u32> {
            (0..batch).flat_map(|_| positions().map(|at| limit(at) as u32)).collect()
        };
        let [x, dy] = [1, 2].map(|seed| target.floats(dtype, &values(shape.elements(), seed)));
        let halos = has_halos.then(|| [halo(4), halo(5)]);
        let of_halo =
            |side: usize| halos.as_ref().map_or_else(Vec::new, |halos| halos[side].wide());
        Case {
            shape,
            numbers: [[x.wide(), of_halo(0)], [dy.wide(), of_halo(1)]],
            x,
            dy,
            weight: target.floats(dtype, &values(channels * taps, 3)),
            halos,
            limits: has_limits.then(|| [limits(|at| at - at % 3), limits(|at| at - at % 3 + 3)]),
        }
    }

    /// Returns the element of `channel` at a distance from a row, 0 if there is none.
    fn at(&self, adjoint: bool, row: usize, distance: usize, channel: usize) -> f64 {
        let s = &self.shape;
        let (sample, at) = (row / s.positions(), row % s.positions());
        let [first, _] = s.ranges;
        let (number, at) = if at < first.len { (0, at) } else { (1, at - first.len) };
        let range = s.ranges[number];
        if let Some(limits) = &self.limits {
            let position = range.start + at;
            let limit = limits[usize::from(adjoint)][row] as usize;
            let is_beyond =
                if adjoint { position + distance >= limit } else { position < limit + distance };
            if is_beyond {
                return 0.0;
            }
        }
        let [of_operand, of_halo] = &self.numbers[usize::from(adjoint)];
        let is_own = if adjoint { at + distance < range.len } else { distance <= at };
        if is_own {
            let row = if adjoint { row + distance } else { row - distance };
            return of_operand[row * s.channels + channel];
        }
        let beyond = if adjoint { at + distance - range.len } else { s.taps - 1 + at - distance };
        let row = (sample * s.halo_ranges() + number) * (s.taps - 1) + beyond;
        of_halo.get(row * s.channels + channel).copied().unwrap_or(0.0)
    }

    /// Computes the convolution, or its adjoint.
    fn convolved(&self, target: &Target, adjoint: bool) -> Operand {
        let limits = self.limits.as_ref().map(|limits| target.put(&limits[usize::from(adjoint)]));
        let halo = self.halos.as_ref().map(|halos| halos[usize::from(adjoint)].view());
        let neighbors = Neighbors { halo, limits: limits.as_ref().map(Operand::view) };
        let x = if adjoint { &self.dy } else { &self.x };
        let mut y = target.blank(x.dtype(), self.shape.elements());
        let (x, weight, to) = (x.view(), self.weight.view(), y.view_mut());
        let args = CausalConvArgs { x, neighbors, weight, adjoint, y: to };
        target.backend().causal_conv(&self.shape, args);
        y
    }

    /// Computes the gradient of the weight, onto `before` if there is one.
    fn weight_grad(&self, target: &Target, before: Option<&[f32]>) -> Operand {
        let limits = self.limits.as_ref().map(|limits| target.put(&limits[1]));
        let halo = self.halos.as_ref().map(|halos| halos[1].view());
        let neighbors = Neighbors { halo, limits: limits.as_ref().map(Operand::view) };
        let len = self.shape.channels * self.shape.taps;
        let mut dweight =
            before.map_or_else(|| target.blank(DType::F32, len), |before| target.put(before));
        let (x, dy) = (self.x.view(), self.dy.view());
        let to = LeafGrad { view: dweight.view_mut(), accumulate: before.is_some() };
        let args = CausalConvWeightGradArgs { x, dy, neighbors, dweight: to };
        target.backend().causal_conv_weight_grad(&self.shape, args);
        dweight
    }
}

/// Convolutions, their adjoints and the gradients of weights follow the formula, with and without halos and documents.
pub fn causal(target: &Target) {
    for sizes in target.cases(&SIZES, &LARGE) {
        for with in [(false, false), (true, false), (false, true), (true, true)] {
            for dtype in FLOATS {
                let case = Case::new(target, dtype, sizes, with);
                let (s, what) = (case.shape, format!("{sizes:?}, {with:?}"));
                let weight = case.weight.wide();
                let tap = |channel, distance| channel * s.taps + s.taps - 1 - distance;
                for adjoint in [false, true] {
                    let sum = |row: usize, channel: usize| -> f64 {
                        let term = |distance| {
                            case.at(adjoint, row, distance, channel)
                                * weight[tap(channel, distance)]
                        };
                        (0..s.taps).map(term).sum()
                    };
                    let row = |row| (0..s.channels).map(move |channel| (row, channel));
                    let all = (0..s.rows()).flat_map(row);
                    let expected: Vec<f64> = all.map(|(row, channel)| sum(row, channel)).collect();
                    let got = case.convolved(target, adjoint);
                    target.check(&format!("{what}, adjoint {adjoint}"), &got, &expected, 1e-6);
                }
                let before = values(s.channels * s.taps, 6);
                let x = case.x.wide();
                let mut expected = vec![0.0; before.len()];
                for (row, channel) in
                    (0..s.rows()).flat_map(|row| (0..s.channels).map(move |channel| (row, channel)))
                {
                    for distance in 0..s.taps {
                        let dy = case.at(true, row, distance, channel);
                        expected[tap(channel, distance)] += x[row * s.channels + channel] * dy;
                    }
                }
                target.check(&what, &case.weight_grad(target, None), &expected, 2e-6);
                let sums =
                    expected.iter().zip(&before).map(|(sum, before)| sum + f64::from(*before));
                let sums: Vec<f64> = sums.collect();
                target.check(&what, &case.weight_grad(target, Some(&before)), &sums, 2e-6);
            }
        }
    }
}

/// Samples, positions, channels, taps, stride and padding.
const UNFOLDED: [[usize; 6]; 9] = [
    [0, 4, 3, 3, 1, 1],
    [2, 4, 0, 3, 1, 1],
    [2, 5, 3, 3, 1, 1],
    [2, 6, 4, 3, 2, 1],
    [1, 7, 8, 3, 2, 1],
    [2, 9, 5, 4, 3, 0],
    [1, 2, 3, 5, 1, 2],
    [3, 5, 16, 1, 2, 0],
    [1, 1, 2, 2, 4, 3],
];

/// Rows for several threads of a CPU.
const UNFOLDED_LARGE: [[usize; 6]; 1] = [[2, 301, 40, 3, 2, 1]];

/// Elements are copied to the outputs that read them, and gradients are summed back.
pub fn unfolded(target: &Target) {
    for [batch, len, channels, taps, stride, padding] in target.cases(&UNFOLDED, &UNFOLDED_LARGE) {
        let shape = UnfoldShape { batch, len, channels, taps, stride, padding };
        let outputs = (len + 2 * padding - taps) / stride + 1;
        assert_eq!(shape.output_len(), Some(outputs));
        let what = format!("{shape:?}");
        for dtype in FLOATS {
            let x = target.floats(dtype, &values(batch * len * channels, 1));
            let dout = target.floats(dtype, &values(batch * outputs * channels * taps, 2));
            let (from, gradients) = (x.numbers(), dout.wide());
            let mut expected = vec![0.0; gradients.len()];
            let mut sums = vec![0.0; from.len()];
            for (i, copy) in expected.iter_mut().enumerate() {
                let (row, channel, tap) = (i / taps / channels, i / taps % channels, i % taps);
                let at = (row % outputs * stride + tap).checked_sub(padding).filter(|at| *at < len);
                if let Some(at) = at {
                    let source = (row / outputs * len + at) * channels + channel;
                    *copy = from[source];
                    sums[source] += gradients[i];
                }
            }
            let mut out = target.blank(dtype, gradients.len());
            target.backend().unfold(&shape, x.view(), out.view_mut());
            target.check_exactly(&what, &out, &expected);
            let mut dx = target.blank(dtype, from.len());
            target.backend().fold(&shape, dout.view(), dx.view_mut());
            target.check(&what, &dx, &sums, 1e-6);
        }
    }
    let short = UnfoldShape { batch: 1, len: 2, channels: 1, taps: 5, stride: 1, padding: 1 };
    assert_eq!(short.output_len(), None);
}
