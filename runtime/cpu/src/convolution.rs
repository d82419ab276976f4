//! Convolutions along a sequence.

use super::CpuBackend;
use super::float::{Float, by_float};
use super::math::fma;
use super::norm::add_rows;
use super::scratch::with_scratch;
use super::simd::dispatch;
use super::workers::{Rows, Workers};
use meshwright_backend::ops::convolution::{CausalConvArgs, CausalConvWeightGradArgs, Neighbors};
use meshwright_backend::{CausalConvShape, ConvolutionOps, LeafGrad, UnfoldShape, View, ViewMut};

/// Rows per partial sum of a weight gradient.
const CHUNK: usize = 128;

impl ConvolutionOps for CpuBackend {
    fn causal_conv(&self, shape: &CausalConvShape, args: CausalConvArgs) {
        by_float!(args.x.dtype() => T; causal_conv::<T>(&self.workers, shape, args));
    }

    fn causal_conv_weight_grad(&self, shape: &CausalConvShape, args: CausalConvWeightGradArgs) {
        by_float!(args.x.dtype() => T; weight_grad::<T>(&self.workers, shape, args));
    }

    fn unfold(&self, shape: &UnfoldShape, x: View, mut out: ViewMut) {
        by_float!(x.dtype() => T; unfold::<T>(&self.workers, shape, x.typed(), out.typed()));
    }

    fn fold(&self, shape: &UnfoldShape, dout: View, mut dx: ViewMut) {
        by_float!(dx.dtype() => T; fold::<T>(&self.workers, shape, dout.typed(), dx.typed()));
    }
}

/// The rows that the taps read.
struct Taps<'a, T> {
    shape: &'a CausalConvShape,
    x: &'a [T],
    halo: Option<&'a [T]>,
    limits: Option<&'a [u32]>,
    /// True if taps read the following positions.
    adjoint: bool,
}

impl<'a, T: Float> Taps<'a, T> {
    fn new(
        shape: &'a CausalConvShape,
        x: &'a [T],
        neighbors: &Neighbors<'a>,
        adjoint: bool,
    ) -> Taps<'a, T> {
        let halo = neighbors.halo.map(|halo| halo.typed());
        Taps { shape, x, halo, limits: neighbors.limits.map(|limits| limits.typed()), adjoint }
    }

    /// Returns the rows that `row` reads at distances 0 and up, as far as there are any.
    fn rows(&self, row: usize) -> impl Iterator<Item = &'a [T]> {
        let (positions, channels) = (self.shape.positions(), self.shape.channels);
        let [first, second] = self.shape.ranges;
        let (sample, at) = (row / positions, row % positions);
        let (number, range, at) =
            if at < first.len { (0, first, at) } else { (1, second, at - first.len) };
        let reach = self.shape.taps - 1;
        let position = range.start + at;
        let most = self.limits.map_or(reach, |limits| {
            let limit = limits[row] as usize;
            if self.adjoint { limit - 1 - position } else { position - limit }
        });
        let halo_start = (sample * self.shape.halo_ranges() + number) * reach;
        let (x, halo, adjoint) = (self.x, self.halo, self.adjoint);
        let of = move |operand: &'a [T], row: usize| &operand[row * channels..][..channels];
        (0..=reach.min(most)).map_while(move |distance| {
            if adjoint {
                match (at + distance).checked_sub(range.len) {
                    None => Some(of(x, row + distance)),
                    Some(beyond) => Some(of(halo?, halo_start + beyond)),
                }
            } else if distance <= at {
                Some(of(x, row - distance))
            } else {
                Some(of(halo?, halo_start + reach + at - distance))
            }
        })
    }
}

fn causal_conv<T: Float>(workers: &Workers, s: &CausalConvShape, args: CausalConvArgs) {
    let CausalConvArgs { x, neighbors, weight, adjoint, mut y } = args;
    s.check_operands(&[x, y.as_view()], neighbors, weight.len());
    let (weight, channels): (&[T], _) = (weight.typed(), s.channels);
    if s.elements() == 0 {
        return;
    }
    let taps = Taps::<T>::new(s, x.typed(), &neighbors, adjoint);
    with_scratch(s.taps * channels, |by_distance| {
        for (distance, of_tap) in by_distance.chunks_exact_mut(channels).enumerate() {
            for (channel, to) in of_tap.iter_mut().enumerate() {
                *to = weight[channel * s.taps + s.taps - 1 - distance].widen_to_f32();
            }
        }
        let by_distance = &*by_distance;
        workers.rows(s.rows(), s.taps * channels, Rows(y.typed::<T>(), channels), |range, y| {
            with_scratch(channels, |sum| {
                for (row, y) in range.zip(y.0.chunks_exact_mut(channels)) {
                    sum.fill(0.0);
                    for (x, weight) in taps.rows(row).zip(by_distance.chunks_exact(channels)) {
                        add_weighted(sum, weight, x);
                    }
                    super::float::cast_slice(sum, y);
                }
            });
        });
    });
}

fn weight_grad<T: Float>(workers: &Workers, s: &CausalConvShape, args: CausalConvWeightGradArgs) {
    let CausalConvWeightGradArgs { x, dy, neighbors, dweight } = args;
    let LeafGrad { view: mut dweight, accumulate } = dweight;
    s.check_operands(&[x, dy], neighbors, dweight.len());
    let (channels, dweight, x): (_, &mut [f32], &[T]) = (s.channels, dweight.typed(), x.typed());
    let taps = Taps::<T>::new(s, dy.typed(), &neighbors, true);
    let (rows, len) = (s.rows(), s.taps * channels);
    if len == 0 {
        return;
    }
    let chunks = rows.div_ceil(CHUNK);
    with_scratch((chunks + 1) * len, |scratch| {
        scratch.fill(0.0);
        let (total, partial) = scratch.split_at_mut(len);
        workers.chunks(chunks, 1, Rows(&mut *partial, len), |range, partial| {
            let first = range.start * CHUNK;
            for row in first..rows.min(first + CHUNK) {
                let x = &x[row * channels..][..channels];
                for (dy, sum) in taps.rows(row).zip(partial.0.chunks_exact_mut(channels)) {
                    add_products(sum, x, dy);
                }
            }
        });
        add_rows(partial, total);
        for (channel, dweight) in dweight.chunks_exact_mut(s.taps).enumerate() {
            for (tap, to) in dweight.iter_mut().enumerate() {
                let sum = total[(s.taps - 1 - tap) * channels + channel];
                *to = if accumulate { *to + sum } else { sum };
            }
        }
    });
}

dispatch! {
    fn add_weighted<const FMA: bool, T: Float>(sum: &mut [f32], weight: &[f32], x: &[T]) {
        for (sum, (weight, x)) in sum.iter_mut().zip(weight.iter().zip(x)) {
            *sum = fma::<FMA>(*weight, x.widen_to_f32(), *sum);
        }
    }
}

dispatch! {
    fn add_products<const FMA: bool, T: Float>(sum: &mut [f32], x: &[T], y: &[T]) {
        for (sum, (x, y)) in sum.iter_mut().zip(x.iter().zip(y)) {
            *sum = fma::<FMA>(x.widen_to_f32(), y.widen_to_f32(), *sum);
        }
    }
}

fn unfold<T: Float>(workers: &Workers, s: &UnfoldShape, x: &[T], out: &mut [T]) {
    assert_eq!([x.len(), out.len()], s.elements(), "{s:?}");
    let (outputs, width) = (s.output_len().unwrap_or(0), s.channels * s.taps);
    if out.is_empty() {
        return;
    }
    workers.rows(s.batch * outputs, width, Rows(out, width), |range, out| {
        for (row, out) in range.zip(out.0.chunks_exact_mut(width)) {
            let first = row % outputs * s.stride;
            for tap in 0..s.taps {
                let at = (first + tap).checked_sub(s.padding).filter(|at| *at < s.len);
                let to = out[tap..].iter_mut().step_by(s.taps);
                match at {
                    Some(at) => {
                        let from = &x[(row / outputs * s.len + at) * s.channels..][..s.channels];
                        to.zip(from).for_each(|(to, x)| *to = *x);
                    }
                    None => to.for_each(|to| *to = T::ZERO),
                }
            }
        }
    });
}

fn fold<T: Float>(workers: &Workers, s: &UnfoldShape, dout: &[T], dx: &mut [T]) {
    assert_eq!([dx.len(), dout.len()], s.elements(), "{s:?}");
    let (outputs, channels) = (s.output_len().unwrap_or(0), s.channels);
    if dx.is_empty() {
        return;
    }
    workers.rows(s.batch * s.len, channels * s.taps, Rows(dx, channels), |range, dx| {
        with_scratch(channels, |sum| {
            for (row, dx) in range.zip(dx.0.chunks_exact_mut(channels)) {
                sum.fill(0.0);
                let at = row % s.len + s.padding;
                for tap in 0..s.taps.min(at + 1) {
                    let output = (at - tap) / s.stride;
                    if !(at - tap).is_multiple_of(s.stride) || output >= outputs {
                        continue;
                    }
                    let first = (row / s.len * outputs + output) * channels * s.taps + tap;
                    for (sum, dout) in sum.iter_mut().zip(dout[first..].iter().step_by(s.taps)) {
                        *sum += dout.widen_to_f32();
                    }
                }
                super::float::cast_slice(sum, dx);
            }
        });
    });
}
