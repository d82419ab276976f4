//! Softmax over rows.

use crate::backend::{View, ViewMut};

/// Softmax kernels.
pub trait SoftmaxOps {
    /// Computes the softmax of rows of `cols` elements.
    fn softmax(&self, cols: usize, x: View, y: ViewMut);
    /// Computes the backward of [`softmax`](Self::softmax) from its result: `dx = y * (dy - sum(y * dy))`.
    fn softmax_backward(&self, cols: usize, y: View, dy: View, dx: ViewMut);
}
