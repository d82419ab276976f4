//! A call of attention and its backward.

use half::bf16;
use meshwright::backend::ops::attention::{AttentionArgs, AttentionBackwardArgs};
use meshwright::backend::{AttentionShape, Band, DType, DistanceBias, KeyRanges};

use crate::support::{Operand, Side, values};

/// Results of a case, in order; gradients that it does not require are empty.
pub const NAMES: [&str; 7] = ["out", "lse", "dq", "dk", "dv", "dbias", "dsinks"];

/// Results, in the order of [`NAMES`].
pub type Results<T = f32> = [Vec<T>; 7];

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

/// Returns the elements of log-sum-exps `[batch, heads, queries.pitch]`, up to the last query.
pub fn lse_len(s: &AttentionShape) -> usize {
    match s.batch * s.heads {
        0 => 0,
        rows => (rows - 1) * s.queries.pitch + s.queries.len,
    }
}

/// Values of a distance bias.
pub struct Bias {
    pub values: Vec<f32>,
    pub distances: usize,
    pub zero: usize,
}

pub struct Case {
    pub s: AttentionShape,
    pub dtype: DType,
    pub q: Vec<f32>,
    pub k: Vec<f32>,
    pub v: Vec<f32>,
    pub dout: Vec<f32>,
    /// First keys and ends of the keys of all queries, gaps included.
    pub ranges: Option<[Vec<u32>; 2]>,
    pub bias: Option<Bias>,
    pub sinks: Option<Vec<f32>>,
    /// Results in f32, whatever the dtype of operands.
    pub wide: bool,
    /// Gradients are added to [`before`](Self::before).
    pub accumulate: bool,
}

impl Case {
    /// Operands that are numbers of `dtype`; the positions between samples are NaN.
    pub fn new(s: AttentionShape, dtype: DType) -> Case {
        let numbers = |of_keys: bool, dim: usize, seed: u64, factor: f32| -> Vec<f32> {
            let (layout, heads) = if of_keys { (s.keys, s.kv_heads) } else { (s.queries, s.heads) };
            let mut all = values(layout.span(s.batch) * heads * dim, seed);
            for (row, chunk) in all.chunks_exact_mut((heads * dim).max(1)).enumerate() {
                let is_gap = row % layout.pitch >= layout.len;
                let number = |x: f32| if is_gap { f32::NAN } else { round(dtype, factor * x) };
                chunk.iter_mut().for_each(|x| *x = number(*x));
            }
            all
        };
        Case {
            s,
            dtype,
            q: numbers(false, s.head_dim, 1, 3.0),
            k: numbers(true, s.head_dim, 2, 2.0),
            v: numbers(true, s.value_dim, 3, 1.0),
            dout: numbers(false, s.value_dim, 4, 1.0),
            ranges: None,
            bias: None,
            sinks: None,
            wide: false,
            accumulate: false,
        }
    }

    /// Adds key ranges of documents with these lengths in every sample, so that queries see their own document only;
    /// queries after the last document see nothing.
    pub fn with_documents(mut self, lengths: &[usize]) -> Case {
        let mut ranges = [Vec::new(), Vec::new()];
        let [first, end] = &mut ranges;
        let mut start = 0;
        for len in lengths {
            first.extend(vec![start as u32; *len]);
            end.extend(vec![(start + len) as u32; *len]);
            start += len;
        }
        let layout = self.s.queries;
        // Between samples, every key would be seen.
        for (of_sample, gap) in [(first, 0), (end, u32::MAX)] {
            of_sample.resize(layout.len, start as u32);
            of_sample.iter_mut().for_each(|key| *key = (*key).min(self.s.keys.len as u32));
            of_sample.resize(layout.pitch, gap);
            *of_sample = of_sample.repeat(self.s.batch);
        }
        self.ranges = Some(ranges);
        self
    }

    /// Adds a bias of this many distances.
    pub fn with_bias(mut self, distances: usize, zero: usize) -> Case {
        let values = values(self.s.heads * distances, 5);
        self.bias = Some(Bias { values, distances, zero });
        self
    }

    pub fn with_sinks(mut self) -> Case {
        self.sinks = Some(values(self.s.heads, 6));
        self
    }

    /// Dtype of results.
    fn result(&self) -> DType {
        if self.wide { DType::F32 } else { self.dtype }
    }

    /// The contents of `dq`, `dk`, `dv` and `dbias` before the backward: NaN unless they are added to.
    pub fn before(&self) -> [Vec<f32>; 4] {
        let lens = [self.q.len(), self.k.len(), self.v.len(), self.bias_len()];
        [0, 1, 2, 3].map(|i| {
            if !self.accumulate {
                return vec![f32::NAN; lens[i]];
            }
            let dtype = if i == 3 { DType::F32 } else { self.result() };
            values(lens[i], 7 + i as u64).into_iter().map(|x| round(dtype, x)).collect()
        })
    }

    fn bias_len(&self) -> usize {
        self.bias.as_ref().map_or(0, |bias| bias.values.len())
    }

    pub fn run(&self, side: &Side) -> Results {
        let Case { s, dtype, q, k, v, dout, .. } = self;
        let (backend, result) = (side.backend(), self.result());
        let mut out = side.blank(result, dout.len());
        let mut lse = side.blank(DType::F32, lse_len(s));
        let [q, k, v, dout] = [q, k, v, dout].map(|x| side.floats(*dtype, x));
        let ranges = self.ranges.as_ref().map(|ranges| ranges.each_ref().map(|x| side.put(x)));
        let ranges =
            ranges.as_ref().map(|[first, end]| KeyRanges { first: first.view(), end: end.view() });
        let bias_values = self.bias.as_ref().map(|bias| side.floats(DType::F32, &bias.values));
        let bias = self.bias.as_ref().zip(bias_values.as_ref()).map(|(bias, values)| {
            let &Bias { distances, zero, .. } = bias;
            DistanceBias { values: values.view(), distances, zero }
        });
        let sinks = self.sinks.as_ref().map(|sinks| side.floats(DType::F32, sinks));
        let sinks = sinks.as_ref().map(Operand::view);
        let (q, k, v) = (q.view(), k.view(), v.view());
        let (into_out, into_lse) = (out.view_mut(), lse.view_mut());
        backend.attention(
            s,
            AttentionArgs { q, k, v, ranges, bias, sinks, out: into_out, lse: into_lse },
        );
        let [dq, dk, dv, dbias] = self.before();
        let [mut dq, mut dk, mut dv] = [dq, dk, dv].map(|x| side.floats(result, &x));
        let mut dbias = side.floats(DType::F32, &dbias);
        let mut dsinks = side.blank(DType::F32, self.sinks.as_ref().map_or(0, Vec::len));
        backend.attention_backward(
            s,
            AttentionBackwardArgs {
                q,
                k,
                v,
                ranges,
                bias,
                sinks,
                out: out.view(),
                lse: lse.view(),
                dout: dout.view(),
                accumulate: self.accumulate,
                dq: dq.view_mut(),
                dk: dk.view_mut(),
                dv: dv.view_mut(),
                dbias: bias.map(|_| dbias.view_mut()),
                dsinks: sinks.map(|_| dsinks.view_mut()),
            },
        );
        [out, lse, dq, dk, dv, dbias, dsinks].map(|operand| operand.numbers())
    }

    /// Returns the largest error of each result.
    pub fn errors(&self, got: &Results) -> [f64; 7] {
        self.reference().errors(got)
    }
}

/// Results of the formula.
pub struct Expected {
    /// NaN where nothing is written.
    pub results: Results<f64>,
    /// The order of the terms of each result's sums, which may cancel: errors are relative to it where all values are
    /// smaller.
    pub orders: [f64; 7],
}

impl Expected {
    /// Returns the largest error of each of the first `N` results, relative to its largest value. Positions between
    /// samples are to keep their contents, and infinities are to be the same: anything else is an infinite error.
    pub fn errors<const N: usize>(&self, got: &[Vec<f32>; N]) -> [f64; N] {
        std::array::from_fn(|i| largest_error(&got[i], &self.results[i], self.orders[i]))
    }
}

fn largest_error(got: &[f32], expected: &[f64], order: f64) -> f64 {
    assert_eq!(got.len(), expected.len());
    let finite = expected.iter().filter(|x| x.is_finite());
    let largest = finite.fold(order, |max: f64, x| max.max(x.abs()));
    let errors = got.iter().zip(expected).map(|(got, expected)| {
        let got = f64::from(*got);
        let same = got == *expected || got.is_nan() && expected.is_nan();
        if same { 0.0 } else { (got - expected).abs() / largest }
    });
    // NaN counts as the largest error.
    errors.fold(0.0, |max: f64, x| if x <= max { max } else { x })
}

fn round(dtype: DType, x: f32) -> f32 {
    match dtype {
        DType::Bf16 => bf16::from_f32(x).to_f32(),
        _ => x,
    }
}
