//! The trait of untyped operations with a gradient.

use std::sync::Arc;

use crate::context::Rank;
use meshwright_backend::{Buffer, View};

use super::super::param_use::ParamUse;
use super::super::tape::TapeGradients;
use super::super::value::Value;
use super::arity::Arity;
use super::operands::SavedInput;
use super::saved_results::SavedResults;

/// An operation with a gradient, of `X` inputs and `P` parameters: the kernels of its forward and its backward.
pub(crate) trait Operation<X: Arity, P: Arity>: 'static {
    /// Results of forward that backward reads, besides the output.
    type Saved: SavedResults;

    /// Computes the output and the results for backward.
    fn forward(
        &self,
        forward: OperationForward<'_, X, P>,
    ) -> (Buffer, <Self::Saved as SavedResults>::Computed);

    /// Returns true if backward reads the output.
    fn saves_output(&self) -> bool {
        false
    }

    /// Computes the gradients of inputs and parameters.
    fn backward(self, backward: OperationBackward<'_, '_, X, P>, saved: Self::Saved);
}

/// Operands of a forward.
pub(crate) struct OperationForward<'a, X: Arity, P: Arity> {
    pub(crate) rank: &'a Rank,
    /// Computed values, but for deferred sums that are left to the operation.
    pub(crate) inputs: X::Array<&'a Value>,
    pub(crate) params: P::Array<View<'a>>,
    /// True if the operation is recorded for backward.
    pub(crate) recorded: bool,
}

/// Operands of a backward, and the receivers of its results.
pub(crate) struct OperationBackward<'g, 'r, X: Arity, P: Arity> {
    pub(crate) gradients: &'g mut TapeGradients<'r>,
    pub(crate) inputs: X::Array<SavedInput>,
    /// Uses of the parameters; each is finished once.
    pub(crate) params: P::Array<ParamUse>,
    /// The output, if the operation saves it.
    pub(crate) output: Option<Arc<Buffer>>,
    /// Gradient of the output.
    pub(crate) gradient: Arc<Buffer>,
}
