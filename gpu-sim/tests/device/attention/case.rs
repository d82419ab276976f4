//! A call of attention and its backward, and the expected results.

use half::bf16;
use meshwright::backend::{AttentionArgs, AttentionBackwardArgs, AttentionShape, Band, DType};

use crate::support::{Side, values};

pub const NAMES: [&str; 5] = ["out", "lse", "dq", "dk", "dv"];

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

pub struct Case {
    pub s: AttentionShape,
    pub dtype: DType,
    pub q: Vec<f32>,
    pub k: Vec<f32>,
    pub v: Vec<f32>,
    pub dout: Vec<f32>,
}

impl Case {
    /// Operands that are numbers of `dtype`.
    pub fn new(s: AttentionShape, dtype: DType) -> Case {
        let rows = s.batch * s.queries.len * s.head_dim;
        let numbers = |heads: usize, seed: u64, factor: f32| -> Vec<f32> {
            let round = |x: f32| match dtype {
                DType::Bf16 => bf16::from_f32(x).to_f32(),
                _ => x,
            };
            values(rows * heads, seed).into_iter().map(|x| round(factor * x)).collect()
        };
        Case {
            s,
            dtype,
            q: numbers(s.heads, 1, 3.0),
            k: numbers(s.kv_heads, 2, 2.0),
            v: numbers(s.kv_heads, 3, 1.0),
            dout: numbers(s.heads, 4, 1.0),
        }
    }

    /// `[out, lse, dq, dk, dv]`.
    pub fn run(&self, side: &Side) -> [Vec<f32>; 5] {
        let Case { s, dtype, q, k, v, dout } = self;
        let backend = side.backend();
        let mut out = side.blank(*dtype, q.len());
        let mut lse = side.blank(DType::F32, s.batch * s.queries.len * s.heads);
        let mut dq = side.blank(*dtype, q.len());
        let [mut dk, mut dv] = [k, v].map(|x| side.blank(*dtype, x.len()));
        let [q, k, v, dout] = [q, k, v, dout].map(|x| side.floats(*dtype, x));
        backend.attention(
            s,
            AttentionArgs {
                q: q.view(),
                k: k.view(),
                v: v.view(),
                ranges: None,
                bias: None,
                sinks: None,
                out: out.view_mut(),
                lse: lse.view_mut(),
            },
        );
        backend.attention_backward(
            s,
            AttentionBackwardArgs {
                q: q.view(),
                k: k.view(),
                v: v.view(),
                ranges: None,
                bias: None,
                sinks: None,
                out: out.view(),
                accumulate: false,
                dbias: None,
                dsinks: None,
                lse: lse.view(),
                dout: dout.view(),
                dq: dq.view_mut(),
                dk: dk.view_mut(),
                dv: dv.view_mut(),
            },
        );
        [out, lse, dq, dk, dv].map(|operand| operand.numbers())
    }

    /// Returns the results of the textbook formula, in f64.
    pub fn reference(&self) -> [Vec<f64>; 5] {
        let &AttentionShape { batch, heads, kv_heads, head_dim, band, .. } = &self.s;
        let seq = self.s.queries.len;
        let scale = f64::from(self.s.scale);
        let [q, k, v, dout] = [&self.q, &self.k, &self.v, &self.dout]
            .map(|x| x.iter().map(|x| f64::from(*x)).collect::<Vec<f64>>());
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let add = |to: &mut [f64], factor: f64, x: &[f64]| {
            to.iter_mut().zip(x).for_each(|(to, x)| *to += factor * x)
        };
        let [mut out, mut dq] = [(); 2].map(|()| vec![0.0; q.len()]);
        let [mut dk, mut dv] = [(); 2].map(|()| vec![0.0; k.len()]);
        let mut lse = vec![0.0; batch * heads * seq];
        let rows = (0..batch).flat_map(|b| (0..heads).map(move |h| (b, h)));
        for (b, h, i) in rows.flat_map(|(b, h)| (0..seq).map(move |i| (b, h, i))) {
            let query = ((b * seq + i) * heads + h) * head_dim;
            let query = query..query + head_dim;
            let key = |j: usize| {
                let start = ((b * seq + j) * kv_heads + h / (heads / kv_heads)) * head_dim;
                start..start + head_dim
            };
            let seen = band.visible(i, seq).end;
            let scores: Vec<f64> =
                (0..seen).map(|j| scale * dot(&q[query.clone()], &k[key(j)])).collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = scores.iter().map(|s| (s - max).exp()).sum();
            lse[(b * heads + h) * seq + i] = max + total.ln();
            let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp() / total).collect();
            for (j, weight) in weights.iter().enumerate() {
                add(&mut out[query.clone()], *weight, &v[key(j)]);
            }
            let delta = dot(&dout[query.clone()], &out[query.clone()]);
            for (j, weight) in weights.iter().enumerate() {
                let dscore = weight * (dot(&dout[query.clone()], &v[key(j)]) - delta) * scale;
                add(&mut dv[key(j)], *weight, &dout[query.clone()]);
                add(&mut dq[query.clone()], dscore, &k[key(j)]);
                add(&mut dk[key(j)], dscore, &q[query.clone()]);
            }
        }
        [out, lse, dq, dk, dv]
    }

    /// Returns the largest error of each result, relative to its largest value.
    pub fn errors(&self, got: &[Vec<f32>; 5]) -> [f64; 5] {
        let expected = self.reference();
        std::array::from_fn(|i| {
            assert_eq!(got[i].len(), expected[i].len(), "{}: length", NAMES[i]);
            let largest = expected[i].iter().fold(1e-30, |max: f64, x| max.max(x.abs()));
            let errors = got[i].iter().zip(&expected[i]).map(|(a, b)| (f64::from(*a) - b).abs());
            // NaN counts as the largest error.
            errors.fold(0.0, |max: f64, x| if x <= max { max } else { x }) / largest
        })
    }
}
