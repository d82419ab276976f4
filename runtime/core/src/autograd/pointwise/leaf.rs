//! Leaves of elementwise expressions: values and parameters.

use crate::fsdp::{DeferredParam, DeferredValues};
use crate::layout::AxisSet;
use meshwright_backend::{DType, View};

use super::super::value::{Computed, Value};

/// Operand of an elementwise expression.
#[derive(Clone)]
pub(super) enum ExprLeaf {
    Value(Value),
    /// A parameter over the trailing dims, repeated along the leading ones, and the axes over which its gradient is
    /// partial.
    Param(DeferredParam, AxisSet),
}

impl ExprLeaf {
    /// Returns the number of elements on this rank.
    pub(super) fn len(&self) -> usize {
        match self {
            ExprLeaf::Value(value) => value.len(),
            ExprLeaf::Param(deferred, _) => deferred.param.local_len(),
        }
    }
}

/// Numbers of a leaf during the computation of an expression.
pub(super) enum LeafData<'a> {
    Value(Computed),
    Param(DeferredValues<'a>),
}

impl ExprLeaf {
    /// Returns the value; `None` for a parameter.
    pub(super) fn value(&self) -> Option<&Value> {
        match self {
            ExprLeaf::Value(value) => Some(value),
            ExprLeaf::Param(..) => None,
        }
    }

    /// Returns true for a parameter that is trained.
    pub(super) fn is_trained_param(&self) -> bool {
        matches!(self, ExprLeaf::Param(param, _) if !param.param.is_frozen())
    }
}

impl<'a> LeafData<'a> {
    pub(super) fn read(leaf: &'a ExprLeaf) -> LeafData<'a> {
        match leaf {
            ExprLeaf::Value(value) => LeafData::Value(value.compute_with_node()),
            ExprLeaf::Param(param, axes) => LeafData::Param(param.read(*axes)),
        }
    }

    /// Returns the numbers without recording a read or computing a value for good.
    pub(super) fn peek(leaf: &'a ExprLeaf) -> LeafData<'a> {
        match leaf {
            ExprLeaf::Value(value) => LeafData::Value(Computed { data: value.look(), node: None }),
            ExprLeaf::Param(param, _) => LeafData::Param(param.peek()),
        }
    }

    pub(super) fn view(&self) -> View<'_> {
        match self {
            LeafData::Value(computed) => computed.data.view(),
            LeafData::Param(values) => values.view(),
        }
    }

    pub(super) fn dtype(&self) -> Option<DType> {
        match self {
            LeafData::Value(computed) => Some(computed.data.dtype()),
            LeafData::Param(_) => None,
        }
    }

    /// Returns true if the leaf, which has these numbers, requires a gradient.
    pub(super) fn requires_grad(&self, leaf: &ExprLeaf) -> bool {
        match (self, leaf) {
            (LeafData::Value(computed), _) => computed.node.is_some(),
            (LeafData::Param(_), leaf) => leaf.is_trained_param(),
        }
    }
}
