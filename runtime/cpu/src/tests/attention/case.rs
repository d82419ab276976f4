//! Operands of attention with any layout, mask and score function.

use super::super::values;
use crate::float::Float;
use meshwright_backend::ops::attention::{AttentionArgs, AttentionBackwardArgs};
use meshwright_backend::{
    AttentionShape, Backend, DistanceBias, KeyRanges, SequenceLayout, View, ViewMut,
};

/// The value of results between samples, before and after a call.
pub const GAP: f32 = -3e33;

/// Operands of both directions.
#[derive(Clone)]
pub struct Case {
    pub s: AttentionShape,
    pub q: Vec<f32>,
    pub k: Vec<f32>,
    pub v: Vec<f32>,
    pub dout: Vec<f32>,
    /// First visible key and end of the visible keys of each query.
    pub ranges: Option<[Vec<u32>; 2]>,
    pub bias: Option<Bias>,
    pub sinks: Option<Vec<f32>>,
    /// Gradients are added to some values.
    pub accumulate: bool,
}

#[derive(Clone)]
pub struct Bias {
    pub values: Vec<f32>,
    pub distances: usize,
    pub zero: usize,
}

/// Gradients, with empty ones for operands that a case does not have.
#[derive(Clone)]
pub struct Gradients<E> {
    pub dq: Vec<E>,
    pub dk: Vec<E>,
    pub dv: Vec<E>,
    pub dbias: Vec<f32>,
    pub dsinks: Vec<f32>,
}

/// `[batch, positions, width]` with the values of a layout, and `gap` between the samples.
pub fn lay_out<E: Copy>(
    batch: usize,
    layout: SequenceLayout,
    width: usize,
    values: impl IntoIterator<Item = E>,
    gap: E,
) -> Vec<E> {
    let mut values = values.into_iter();
    let inside = |element: &usize| element / width % layout.pitch.max(1) < layout.len;
    (0..layout.span(batch) * width)
        .map(|element| if inside(&element) { values.next().expect("enough values") } else { gap })
        .collect()
}

impl Case {
    /// Creates operands with NaN between the samples.
    pub fn new(s: AttentionShape) -> Case {
        let operand = |layout: SequenceLayout, width: usize, seed: u64, factor: f32| {
            let x = values(s.batch * layout.len * width, seed).into_iter().map(|x| factor * x);
            lay_out(s.batch, layout, width, x, f32::NAN)
        };
        Case {
            s,
            q: operand(s.queries, s.heads * s.head_dim, 1, 3.0),
            k: operand(s.keys, s.kv_heads * s.head_dim, 2, 1.0),
            v: operand(s.keys, s.kv_heads * s.value_dim, 3, 1.0),
            dout: operand(s.queries, s.heads * s.value_dim, 4, 1.0),
            ranges: None,
            bias: None,
            sinks: None,
            accumulate: false,
        }
    }

    /// Adds a bias that is learned.
    pub fn with_bias(mut self, distances: usize, zero: usize) -> Case {
        self.bias = Some(Bias { values: values(self.s.heads * distances, 5), distances, zero });
        self
    }

    pub fn with_sinks(mut self) -> Case {
        self.sinks = Some(values(self.s.heads, 6).into_iter().map(|x| 2.0 * x).collect());
        self
    }

    /// Adds the same key ranges for every sample.
    pub fn with_ranges(mut self, range: impl Fn(usize, usize) -> [u32; 2]) -> Case {
        let AttentionShape { batch, queries, .. } = self.s;
        let of = |end: usize| {
            let all = (0..batch).flat_map(|b| (0..queries.len).map(move |i| (b, i)));
            lay_out(batch, queries, 1, all.map(|(b, i)| range(b, i)[end]), u32::MAX)
        };
        self.ranges = Some([of(0), of(1)]);
        self
    }

    /// Rounds operands to values that bf16 can hold.
    pub fn rounded(mut self) -> Case {
        for x in [&mut self.q, &mut self.k, &mut self.v, &mut self.dout] {
            x.iter_mut().for_each(|x| *x = half::bf16::from_f32(*x).to_f32());
        }
        self
    }

    fn key_ranges(&self) -> Option<KeyRanges<'_>> {
        let [first, end] = self.ranges.as_ref()?;
        Some(KeyRanges { first: first[..].into(), end: end[..].into() })
    }

    fn distance_bias(&self) -> Option<DistanceBias<'_>> {
        let Bias { values, distances, zero } = self.bias.as_ref()?;
        Some(DistanceBias { values: values[..].into(), distances: *distances, zero: *zero })
    }

    fn sink_view(&self) -> Option<View<'_>> {
        self.sinks.as_ref().map(|sinks| sinks[..].into())
    }

    /// `[out, lse]` before a call: elements that must be overwritten are NaN.
    pub fn unwritten<O: Float>(&self) -> (Vec<O>, Vec<f32>) {
        let s = &self.s;
        let nan = std::iter::repeat(f32::NAN);
        let out = lay_out(s.batch, s.queries, s.heads * s.value_dim, nan.clone(), GAP);
        let lse = lay_out(s.batch * s.heads, s.queries, 1, nan, GAP);
        (out.into_iter().map(O::narrow_from_f32).collect(), lse)
    }

    /// Gradients before a call.
    pub fn initial<O: Float>(&self) -> Gradients<O> {
        let s = &self.s;
        let before = |layout: SequenceLayout, width: usize, seed: u64| -> Vec<f32> {
            let x = values(s.batch * layout.len * width, seed);
            let x = x.into_iter().map(|x| if self.accumulate { x } else { f32::NAN });
            lay_out(s.batch, layout, width, x, GAP)
        };
        let narrow = |x: Vec<f32>| x.into_iter().map(O::narrow_from_f32).collect();
        let distances = self.bias.as_ref().map_or(0, |bias| bias.distances);
        let dbias = values(s.heads * distances, 14).into_iter();
        Gradients {
            dq: narrow(before(s.queries, s.heads * s.head_dim, 11)),
            dk: narrow(before(s.keys, s.kv_heads * s.head_dim, 12)),
            dv: narrow(before(s.keys, s.kv_heads * s.value_dim, 13)),
            dbias: dbias.map(|x| if self.accumulate { x } else { f32::NAN }).collect(),
            // Never added to.
            dsinks: vec![f32::NAN; self.sinks.as_ref().map_or(0, Vec::len)],
        }
    }

    /// `[out, lse]` of operands of type `T`.
    pub fn forward<T: Float, O: Float>(&self, cpu: &dyn Backend) -> (Vec<O>, Vec<f32>) {
        let [q, k, v] = [&self.q, &self.k, &self.v].map(|x| narrow::<T>(x));
        let (mut out, mut lse) = self.unwritten::<O>();
        cpu.attention(
            &self.s,
            AttentionArgs {
                q: q[..].into(),
                k: k[..].into(),
                v: v[..].into(),
                ranges: self.key_ranges(),
                bias: self.distance_bias(),
                sinks: self.sink_view(),
                out: (&mut out[..]).into(),
                lse: (&mut lse[..]).into(),
            },
        );
        (out, lse)
    }

    /// Gradients, in place, from an output and log-sum-exps.
    pub fn backward<T: Float, O: Float, G: Float>(
        &self,
        cpu: &dyn Backend,
        (out, lse): (&[O], &[f32]),
        gradients: &mut Gradients<G>,
    ) {
        let [q, k, v, dout] = [&self.q, &self.k, &self.v, &self.dout].map(|x| narrow::<T>(x));
        let Gradients { dq, dk, dv, dbias, dsinks } = gradients;
        let given = |x: Option<()>, gradient| -> Option<ViewMut<'_>> {
            let gradient: &mut Vec<f32> = gradient;
            x.map(|()| (&mut gradient[..]).into())
        };
        cpu.attention_backward(
            &self.s,
            AttentionBackwardArgs {
                q: q[..].into(),
                k: k[..].into(),
                v: v[..].into(),
                ranges: self.key_ranges(),
                bias: self.distance_bias(),
                sinks: self.sink_view(),
                out: out.into(),
                lse: lse.into(),
                dout: dout[..].into(),
                accumulate: self.accumulate,
                dq: (&mut dq[..]).into(),
                dk: (&mut dk[..]).into(),
                dv: (&mut dv[..]).into(),
                dbias: given(self.bias.as_ref().map(|_| ()), dbias),
                dsinks: given(self.sinks.as_ref().map(|_| ()), dsinks),
            },
        );
    }

    /// All results in f32, in the order of [`NAMES`](super::NAMES).
    pub fn run(&self, cpu: &dyn Backend) -> [Vec<f32>; 7] {
        let (out, lse) = self.forward::<f32, f32>(cpu);
        let mut gradients = self.initial::<f32>();
        self.backward::<f32, f32, f32>(cpu, (&out, &lse), &mut gradients);
        let Gradients { dq, dk, dv, dbias, dsinks } = gradients;
        [out, lse, dq, dk, dv, dbias, dsinks]
    }

    /// The same queries over some of the keys.
    pub fn part(&self, keys: std::ops::Range<usize>) -> Case {
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

pub fn narrow<T: Float>(x: &[f32]) -> Vec<T> {
    x.iter().map(|x| T::narrow_from_f32(*x)).collect()
}
