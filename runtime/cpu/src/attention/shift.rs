//! Shifts: per query, the sum of `dout * out`, which the softmax subtracts from the gradients of weights.

use super::heads::{Head, Heads};
use super::results::InterleavedOutput;
use crate::float::{Float, cast_slice};
use crate::math::lane_sum;
use crate::simd::dispatch;
use meshwright_backend::{SequenceLayout, View};

/// The output of the forward pass, of the dtype `T` of the operands or f32.
pub(super) enum Outputs<'a, T> {
    Rounded(Heads<'a, T>),
    Wide(Heads<'a, f32>),
}

impl<'a, T: Float> Outputs<'a, T> {
    pub fn new(out: View<'a>, layout: SequenceLayout, sizes: [usize; 2]) -> Self {
        if out.dtype() == T::DTYPE {
            Outputs::Rounded(Heads::new(out.typed(), layout, sizes))
        } else {
            Outputs::Wide(Heads::new(out.typed(), layout, sizes))
        }
    }

    /// Writes the sum of `dout * out` of each query of one head. `wide` is scratch for one row.
    pub fn row_shifts(
        &self,
        [sample, head]: [usize; 2],
        dout: Head<T>,
        wide: &mut [f32],
        shifts: &mut [f32],
    ) {
        match self {
            Outputs::Rounded(outs) => {
                let out = outs.head(sample, head);
                for (row, shift) in shifts.iter_mut().enumerate() {
                    *shift = dot(dout.row(row), out.row(row));
                }
            }
            Outputs::Wide(outs) => {
                let out = outs.head(sample, head);
                for (row, shift) in shifts.iter_mut().enumerate() {
                    cast_slice(dout.row(row), wide);
                    *shift = dot(wide, out.row(row));
                }
            }
        }
    }
}

dispatch! {
    fn dot<const FMA: bool, T: Float>(a: &[T], b: &[T]) -> f32 {
        lane_sum([a, b], |[a, b]| a * b)
    }
}

/// Sinks, and the parts of their gradient by sample.
pub(super) struct SinkGradient<'a> {
    pub sinks: &'a [f32],
    pub parts: InterleavedOutput<'a, f64>,
}

impl SinkGradient<'_> {
    /// Sums the gradient of the sink of one head over the queries of a sample.
    ///
    /// The weight of a sink is `exp(sink - lse)`, and it has no value.
    pub fn sum(&self, [sample, head]: [usize; 2], lse: &[f32], shifts: &[f32]) {
        let sink = f64::from(self.sinks[head]);
        let weight = |lse: f32| {
            // Nothing has a weight in such a row.
            if lse == f32::NEG_INFINITY { 0.0 } else { (sink - f64::from(lse)).exp() }
        };
        let terms = lse.iter().zip(shifts).map(|(lse, shift)| weight(*lse) * f64::from(*shift));
        // SAFETY: this sample and head belong to one task alone.
        let part = unsafe { self.parts.piece(sample * self.sinks.len() + head, 1) };
        part[0] = -terms.sum::<f64>();
    }
}
