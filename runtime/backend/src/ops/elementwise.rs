//! Fused elementwise expressions.

use crate::{DryRunBackend, Expr, View, ViewMut};

/// Kernels for elementwise expressions.
pub trait ElementwiseOps {
    /// Evaluates an elementwise expression; `out` is written.
    fn map(&self, expr: &Expr, leaves: &[View], out: ViewMut);
    /// Computes the gradients of the leaves of an elementwise expression from the gradient of its result.
    ///
    /// `leaf_grads` has one entry per leaf; the gradient of a leaf that is repeated, as a [`Row`](crate::Node::Row) or
    /// [`Along`](crate::Node::Along) dims, is f32, summed in an order that depends on sizes alone.
    fn map_backward(
        &self,
        expr: &Expr,
        leaves: &[View],
        grad: View,
        leaf_grads: &mut [Option<LeafGrad>],
    );
}

impl ElementwiseOps for DryRunBackend {
    fn map(&self, _: &Expr, _: &[View], _: ViewMut) {}
    fn map_backward(&self, _: &Expr, _: &[View], _: View, _: &mut [Option<LeafGrad>]) {}
}

/// The destination of the gradient of a leaf of an [`Expr`], or of an operand of a norm.
pub struct LeafGrad<'a> {
    /// The gradient: as many elements as the leaf, of its dtype; f32 for a leaf that is repeated, and
    /// for parameters of norms.
    pub view: ViewMut<'a>,
    /// Add to the destination instead of overwriting it; the sum is rounded once.
    pub accumulate: bool,
}
