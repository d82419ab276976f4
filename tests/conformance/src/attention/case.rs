//! Calls of attention and its backward, with any layout, mask and score function.

use std::ops::Range;

use meshwright_backend::ops::attention::{AttentionArgs, AttentionBackwardArgs};
use meshwright_backend::{
    AttentionShape, Band, DType, DistanceBias, KeyRanges, SequenceLayout, View,
};

use crate::values::round;
use crate::{Operand, Target, scaled, values};

/// Results of a case, in order; gradients that it does not require are empty.
pub const NAMES: [&str; 7] = ["out", "lse", "dq", "dk", "dv", "dbias", "dsinks"];

/// Results: output, log-sum-exps, and the gradients of queries, keys, values, biases and sinks.
pub type Results<T = f32> = [Vec<T>; 7];

/// Returns the sizes of self-attention.
pub fn shape(
    batch: usize,
    seq: usize,
    [heads, kv_heads, head_dim]: [usize; 3],
    causal: bool,
) -> AttentionShape {
    let scale = 1.3 / (head_dim as f32).sqrt();
    let band = if causal { Band::CAUSAL } else { Band::ALL };
    AttentionShape { scale, ..AttentionShape::new(batch, seq, [heads, kv_heads, head_dim], band) }
}

/// Values of a distance bias.
#[derive(Clone)]
pub struct Bias {
    /// `[heads, distances]`.
    pub values: Vec<f32>,
    /// Number of distances.
    pub distances: usize,
    /// Index of distance 0.
    pub zero: usize,
}

/// Operands of both directions, which are numbers of `dtype`.
#[derive(Clone)]
pub struct Case {
    /// Sizes, mask and scale.
    pub s: AttentionShape,
    /// Dtype of operands.
    pub dtype: DType,
    /// Queries; NaN between samples.
    pub q: Vec<f32>,
    /// Keys.
    pub k: Vec<f32>,
    /// Values.
    pub v: Vec<f32>,
    /// Gradient of the output.
    pub dout: Vec<f32>,
    /// First visible key and end of the visible keys of each query, gaps included.
    pub ranges: Option<[Vec<u32>; 2]>,
    /// Bias by distance.
    pub bias: Option<Bias>,
    /// Score of the sink of each head.
    pub sinks: Option<Vec<f32>>,
    /// Results in f32, whatever the dtype of operands.
    pub wide: bool,
    /// Gradients are added to some values.
    pub accumulate: bool,
}

/// Returns `[batch, positions, width]` with the values of a layout, and `gap` between the samples.
fn lay_out<T: Copy>(
    batch: usize,
    layout: SequenceLayout,
    width: usize,
    values: impl IntoIterator<Item = T>,
    gap: T,
) -> Vec<T> {
    let mut values = values.into_iter();
    let is_inside = |element: &usize| element / width % layout.pitch.max(1) < layout.len;
    (0..layout.span(batch) * width)
        .map(
            |element| if is_inside(&element) { values.next().expect("enough values") } else { gap },
        )
        .collect()
}

/// Results before a call.
pub(super) struct Initial {
    pub out: Vec<f32>,
    pub lse: Vec<f32>,
    pub dq: Vec<f32>,
    pub dk: Vec<f32>,
    pub dv: Vec<f32>,
    pub dbias: Vec<f32>,
    pub dsinks: Vec<f32>,
}

impl Case {
    /// Creates operands without key ranges, bias and sinks.
    pub fn new(s: AttentionShape, dtype: DType) -> Case {
        let operand = |layout: SequenceLayout, width: usize, seed: u64, factor: f32| {
            let x = scaled(s.batch * layout.len * width, seed, factor);
            lay_out(s.batch, layout, width, x.into_iter().map(|x| round(dtype, x)), f32::NAN)
        };
        Case {
            s,
            dtype,
            q: operand(s.queries, s.heads * s.head_dim, 1, 3.0),
            k: operand(s.keys, s.kv_heads * s.head_dim, 2, 1.0),
            v: operand(s.keys, s.kv_heads * s.value_dim, 3, 1.0),
            dout: operand(s.queries, s.heads * s.value_dim, 4, 1.0),
            ranges: None,
            bias: None,
            sinks: None,
            wide: false,
            accumulate: false,
        }
    }

    /// Adds the key range of each query of each sample.
    pub fn with_ranges(mut self, range: impl Fn(usize, usize) -> [u32; 2]) -> Case {
        let AttentionShape { batch, queries, .. } = self.s;
        let of = |end: usize, gap: u32| {
            let all = (0..batch).flat_map(|b| (0..queries.len).map(move |i| (b, i)));
            lay_out(batch, queries, 1, all.map(|(b, i)| range(b, i)[end]), gap)
        };
        // Between samples, every key would be seen.
        self.ranges = Some([of(0, 0), of(1, u32::MAX)]);
        self
    }

    /// Adds key ranges of documents with these lengths in every sample, so that queries see their own document only;
    /// queries after the last document see nothing.
    pub fn with_documents(self, lengths: &[usize]) -> Case {
        let mut start = 0;
        let mut ranges = Vec::new();
        for len in lengths {
            ranges.extend(vec![[start, start + len]; *len]);
            start += len;
        }
        let keys = self.s.keys.len;
        let range = |_, query| ranges.get(query).copied().unwrap_or([start; 2]);
        self.with_ranges(|sample, query| range(sample, query).map(|key| key.min(keys) as u32))
    }

    /// Adds a bias of this many distances.
    pub fn with_bias(mut self, distances: usize, zero: usize) -> Case {
        self.bias = Some(Bias { values: values(self.s.heads * distances, 5), distances, zero });
        self
    }

    /// Adds a sink to each head.
    pub fn with_sinks(mut self) -> Case {
        self.sinks = Some(scaled(self.s.heads, 6, 2.0));
        self
    }

    /// Returns the dtype of results.
    pub(super) fn result(&self) -> DType {
        if self.wide { DType::F32 } else { self.dtype }
    }

    /// Returns results before a call: `unwritten` if they must be overwritten, and NaN between samples.
    pub(super) fn initial(&self, unwritten: f32) -> Initial {
        let (s, all) = (&self.s, std::iter::repeat(unwritten));
        let before = |len: usize, dtype: DType, seed: u64| -> Vec<f32> {
            let before = |x| if self.accumulate { round(dtype, x) } else { unwritten };
            values(len, seed).into_iter().map(before).collect()
        };
        let gradient = |layout: SequenceLayout, width: usize, seed: u64| {
            let before = before(s.batch * layout.len * width, self.result(), seed);
            lay_out(s.batch, layout, width, before, f32::NAN)
        };
        let distances = self.bias.as_ref().map_or(0, |bias| bias.distances);
        Initial {
            out: lay_out(s.batch, s.queries, s.heads * s.value_dim, all.clone(), f32::NAN),
            lse: lay_out(s.batch * s.heads, s.queries, 1, all, f32::NAN),
            dq: gradient(s.queries, s.heads * s.head_dim, 11),
            dk: gradient(s.keys, s.kv_heads * s.head_dim, 12),
            dv: gradient(s.keys, s.kv_heads * s.value_dim, 13),
            dbias: before(s.heads * distances, DType::F32, 14),
            // Never added to.
            dsinks: vec![unwritten; self.sinks.as_ref().map_or(0, Vec::len)],
        }
    }

    /// Computes all results, in f32.
    pub fn run(&self, target: &Target) -> Results {
        let mut call = Call::new(target, self);
        call.forward(target, self);
        call.backward(target, self);
        call.results.map(|operand| operand.numbers())
    }

    /// Returns the same queries over some of the keys.
    pub(super) fn part(&self, keys: Range<usize>) -> Case {
        let mut case = self.clone();
        let AttentionShape { kv_heads, head_dim, value_dim, .. } = self.s;
        let skip = |x: &[f32], dim: usize| {
            x.get(keys.start * kv_heads * dim..).unwrap_or_default().to_vec()
        };
        (case.k, case.v) = (skip(&self.k, head_dim), skip(&self.v, value_dim));
        case.s.keys.len = keys.len();
        case.s.band.offset -= keys.start as isize;
        let shift = |key: &u32| (*key).saturating_sub(keys.start as u32).min(keys.len() as u32);
        case.ranges =
            self.ranges.as_ref().map(|[a, b]| [a, b].map(|x| x.iter().map(shift).collect()));
        case
    }
}

/// A case in the memory of a target.
pub struct Call {
    /// `[q, k, v, dout]`.
    operands: [Operand; 4],
    ranges: Option<[Operand; 2]>,
    bias: Option<Operand>,
    sinks: Option<Operand>,
    /// In the order of [`NAMES`].
    pub results: [Operand; 7],
}

impl Call {
    pub fn new(target: &Target, case: &Case) -> Call {
        let Initial { out, lse, dq, dk, dv, dbias, dsinks } = case.initial(f32::NAN);
        let operands = [&case.q, &case.k, &case.v, &case.dout];
        let [out, dq, dk, dv] = [out, dq, dk, dv].map(|x| target.floats(case.result(), &x));
        let [lse, dbias, dsinks] = [lse, dbias, dsinks].map(|x| target.put(&x));
        Call {
            operands: operands.map(|x| target.floats(case.dtype, x)),
            ranges: case.ranges.as_ref().map(|ranges| ranges.each_ref().map(|x| target.put(x))),
            bias: case.bias.as_ref().map(|bias| target.put(&bias.values)),
            sinks: case.sinks.as_ref().map(|sinks| target.put(sinks)),
            results: [out, lse, dq, dk, dv, dbias, dsinks],
        }
    }

    pub fn forward(&mut self, target: &Target, case: &Case) {
        let [q, k, v, _] = self.operands.each_ref().map(Operand::view);
        let (ranges, bias) =
            (self.ranges.as_ref().map(key_ranges), distance_bias(&self.bias, case));
        let sinks = self.sinks.as_ref().map(Operand::view);
        let [out, lse, ..] = self.results.each_mut().map(Operand::view_mut);
        let args = AttentionArgs { q, k, v, ranges, bias, sinks, out, lse };
        target.backend().attention(&case.s, args);
    }

    pub fn backward(&mut self, target: &Target, case: &Case) {
        let [q, k, v, dout] = self.operands.each_ref().map(Operand::view);
        let (ranges, bias) =
            (self.ranges.as_ref().map(key_ranges), distance_bias(&self.bias, case));
        let sinks = self.sinks.as_ref().map(Operand::view);
        let [out, lse, dq, dk, dv, dbias, dsinks] = self.results.each_mut();
        let args = AttentionBackwardArgs {
            q,
            k,
            v,
            ranges,
            bias,
            sinks,
            out: out.view(),
            lse: lse.view(),
            dout,
            accumulate: case.accumulate,
            dq: dq.view_mut(),
            dk: dk.view_mut(),
            dv: dv.view_mut(),
            dbias: bias.map(|_| dbias.view_mut()),
            dsinks: sinks.map(|_| dsinks.view_mut()),
        };
        target.backend().attention_backward(&case.s, args);
    }
}

fn key_ranges([first, end]: &[Operand; 2]) -> KeyRanges<'_> {
    KeyRanges { first: first.view(), end: end.view() }
}

fn distance_bias<'a>(values: &'a Option<Operand>, case: &Case) -> Option<DistanceBias<'a>> {
    let (values, bias): (View<'_>, _) = (values.as_ref()?.view(), case.bias.as_ref()?);
    Some(DistanceBias { values, distances: bias.distances, zero: bias.zero })
}
