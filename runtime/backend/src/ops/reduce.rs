//! Reductions over a dim and over whole operands.

use crate::{DryRunBackend, View, ViewMut};

/// Reduction kernels and their backward.
pub trait ReductionOps {
    /// Computes `y[outer, inner] = scale * sum of x[outer, len, inner] over len`; `x` and `y` are f32 or bf16 each.
    fn sum_dim(&self, dim: MiddleDim, x: View, y: ViewMut, scale: f32);
    /// Computes `dx[outer, len, inner] = scale * dy[outer, inner]`, the backward of [`sum_dim`](Self::sum_dim); `dy`
    /// and `dx` are f32 or bf16 each.
    fn broadcast_dim(&self, dim: MiddleDim, dy: View, dx: ViewMut, scale: f32);

    /// Returns the sum of squares in f64, added in an order that depends on the length alone.
    fn sum_squares(&self, x: View) -> f64;
    /// Returns the sum of the [`sum_squares`](Self::sum_squares) of all `parts`, added in their order.
    fn sum_squares_of(&self, parts: &[View]) -> f64 {
        parts.iter().map(|part| self.sum_squares(*part)).sum()
    }
}

impl ReductionOps for DryRunBackend {
    fn sum_dim(&self, _: MiddleDim, _: View, _: ViewMut, _: f32) {}
    fn broadcast_dim(&self, _: MiddleDim, _: View, _: ViewMut, _: f32) {}

    /// Returns 0.
    fn sum_squares(&self, _: View) -> f64 {
        0.0
    }
}

/// A dim of a tensor that is seen as `[outer, len, inner]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MiddleDim {
    /// Product of the sizes of the dims before.
    pub outer: usize,
    /// Size of the dim.
    pub len: usize,
    /// Product of the sizes of the dims after.
    pub inner: usize,
}
