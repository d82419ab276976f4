//! Softmax over rows.

use crate::{DryRunBackend, View, ViewMut};

/// Softmax kernels.
pub trait SoftmaxOps {
    /// Computes the softmax of rows of `cols` elements.
    fn softmax(&self, cols: usize, x: View, y: ViewMut);
    /// Computes the backward of [`softmax`](Self::softmax) from its result: `dx = y * (dy - sum(y * dy))`.
    fn softmax_backward(&self, cols: usize, y: View, dy: View, dx: ViewMut);
}

impl SoftmaxOps for DryRunBackend {
    fn softmax(&self, _: usize, _: View, _: ViewMut) {}
    fn softmax_backward(&self, _: usize, _: View, _: View, _: ViewMut) {}
}
