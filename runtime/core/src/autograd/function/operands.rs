//! Operands of operations with a gradient, and their recorded form for backward.

use std::sync::Arc;

use crate::context::Rank;
use crate::fsdp::{InBackward, ParamRef};
use crate::layout::AxisSet;
use meshwright_backend::Buffer;
use meshwright_mesh::Extent;

use super::super::param_use::ParamUse;
use super::super::saved::Saved;
use super::super::tape::{NodeId, TapeGradients};
use super::super::value::Value;
use super::arity::Arity;

/// Operands of one application of an operation.
pub(crate) struct Operands<'a, X: Arity, P: Arity> {
    pub(crate) rank: &'a Rank,
    /// The field that the operation belongs to, for save policies.
    pub(crate) path: &'a str,
    pub(crate) inputs: X::Array<OperationInput<'a>>,
    pub(crate) params: P::Array<OperationParam<'a>>,
    /// Local extents of the output.
    pub(crate) extents: Vec<Extent>,
}

/// An input of an operation.
#[derive(Clone, Copy)]
pub(crate) struct OperationInput<'a> {
    value: &'a Value,
    in_backward: InBackward,
    may_be_sum: bool,
}

impl<'a> OperationInput<'a> {
    /// Creates an input, whose data is saved if backward reads it.
    pub(crate) fn new(value: &'a Value, in_backward: InBackward) -> OperationInput<'a> {
        OperationInput { value, in_backward, may_be_sum: false }
    }

    /// Leaves a deferred sum of two values to the kernel of forward, which computes it by
    /// [`compute_sum`](Value::compute_sum).
    pub(crate) fn or_deferred_sum(self) -> OperationInput<'a> {
        OperationInput { may_be_sum: true, ..self }
    }

    pub(crate) fn value(&self) -> &'a Value {
        self.value
    }

    /// Computes the input, but for a sum that is left to the kernel. Deferred matmuls of the sum are computed first, as
    /// their parameters are unsharded before the parameters of the operation.
    #[track_caller]
    pub(super) fn compute_before_params(&self) {
        if self.may_be_sum {
            self.value.compute_matmuls();
            if self.value.is_deferred_sum() {
                return;
            }
        }
        self.value.compute();
    }

    /// Saves the input for backward.
    #[track_caller]
    pub(super) fn save(&self) -> SavedInput {
        let data = (self.in_backward == InBackward::Reads).then(|| self.value.save());
        SavedInput::new(data, self.value.compute().node)
    }
}

/// A parameter of an operation.
#[derive(Clone, Copy)]
pub(crate) struct OperationParam<'a> {
    pub(crate) param: &'a ParamRef,
    /// The axes over which the gradient is partial.
    pub(crate) gradient_axes: AxisSet,
    /// Access of backward to the values.
    pub(crate) in_backward: InBackward,
}

impl OperationParam<'_> {
    /// Records the use for backward.
    pub(crate) fn begin_use(&self) -> ParamUse {
        ParamUse::new(self.param, self.gradient_axes, self.in_backward)
    }
}

/// Input of a recorded operation: its data if backward reads them, and the operation that has computed it if it
/// requires a gradient.
pub(crate) struct SavedInput {
    data: Option<Saved>,
    source: Option<NodeId>,
}

impl SavedInput {
    pub(crate) fn new(data: Option<Saved>, source: Option<NodeId>) -> SavedInput {
        SavedInput { data, source }
    }

    /// Returns true if the input requires a gradient.
    pub(crate) fn requires_grad(&self) -> bool {
        self.source.is_some()
    }

    /// Returns the operation that has computed the input, if the input requires a gradient.
    pub(crate) fn source(&self) -> Option<&NodeId> {
        self.source.as_ref()
    }

    /// Starts to gather the data again, if necessary.
    pub(crate) fn prefetch(&self, rank: &Rank) {
        if let Some(data) = &self.data {
            data.prefetch(rank);
        }
    }

    /// Removes the saved data, or returns `None` if backward does not read it.
    pub(crate) fn take_data(&mut self, rank: &Rank) -> Option<Arc<Buffer>> {
        self.data.take().map(|data| data.take_buffer(rank))
    }

    /// Removes the data of an input that backward reads.
    ///
    /// # Panics
    /// If backward was to ignore it, or has taken it before.
    pub(crate) fn take_saved(&mut self, rank: &Rank) -> Arc<Buffer> {
        self.take_data(rank).unwrap_or_else(|| {
            unreachable!("backward takes the data of an input once, and only if it was saved")
        })
    }

    /// Adds `gradient` to the gradient of the input, if the input requires one.
    pub(crate) fn add_gradient(&self, gradients: &mut TapeGradients<'_>, gradient: Arc<Buffer>) {
        if let Some(source) = &self.source {
            gradients.add_gradient(source, gradient);
        }
    }
}
