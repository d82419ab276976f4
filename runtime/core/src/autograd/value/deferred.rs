//! Operations that are deferred until another one needs their numbers.

use std::any::Any;
use std::sync::Arc;

use super::{Computed, Value, ValueState};
use crate::autograd::tape::NodeId;
use crate::context::Rank;
use meshwright_backend::Buffer;

/// An operation whose numbers have not been needed yet.
pub(super) struct Deferred {
    pub(super) op: Box<dyn DeferredOp>,
    pub(super) created: DeferredIn,
    pub(super) requires_grad: bool,
    /// Set if the value is at a boundary: then it is a leaf of the expressions that read it.
    pub(super) boundary: Option<AtBoundary>,
    /// The numbers, if they were needed before the operation was recorded.
    pub(super) peeked: Option<Arc<Buffer>>,
    /// True if parameters that the operation reads have changed since: its numbers are in `peeked`.
    pub(super) is_outdated: bool,
}

/// A deferred operation at a boundary.
pub(super) struct AtBoundary {
    /// The operation as it was recorded at the boundary, if it requires a gradient.
    node: Option<NodeId>,
}

/// An operation that is computed when its numbers are needed, or fused into the operation that needs them.
pub(in crate::autograd) trait DeferredOp: Any {
    /// Computes the `len` elements, unless they are `known`, and records the operation if `recorded`.
    fn compute(
        &mut self,
        rank: &Rank,
        len: usize,
        recorded: bool,
        known: Option<Arc<Buffer>>,
    ) -> Computed;

    /// Computes the `len` elements without recording anything, or computing other deferred operations for good.
    fn peek(&self, rank: &Rank, len: usize) -> Buffer;

    /// Returns true if the operation reads parameters.
    fn reads_params(&self) -> bool;

    /// Returns true if it reads parameters, or values that require a gradient.
    fn requires_grad(&self) -> bool;
}

/// The place in a step at which a deferred operation was created.
#[derive(Clone, Copy)]
pub(in crate::autograd) struct DeferredIn {
    /// True if the operation is recorded for backward, which is decided when it is created.
    pub(in crate::autograd) recorded: bool,
    /// True if it was created in an evaluation, whose results are constants.
    in_evaluation: bool,
}

impl DeferredIn {
    /// Returns the place of an operation that is created now.
    pub(super) fn here(rank: &Rank) -> DeferredIn {
        DeferredIn { recorded: rank.records_operations(), in_evaluation: !rank.is_recording() }
    }

    /// Returns true if an operation that is created now may be fused with it: both belong to an evaluation, or neither
    /// does, and both are recorded, or neither is. The forward pass of a recomputed segment is not recorded either, but
    /// an evaluation inside of it stays apart, as it does when the segment is recomputed.
    pub(in crate::autograd) fn is_fusable(self, rank: &Rank) -> bool {
        self.in_evaluation != rank.is_recording() && self.recorded == rank.records_operations()
    }

    /// Returns true if the operation may be computed now: not one that is recorded by code that is not, nor one of the
    /// step by an evaluation.
    pub(in crate::autograd) fn is_computable(self, rank: &Rank) -> bool {
        !self.is_looked_at(rank) && (rank.records_operations() || !self.recorded)
    }

    fn is_looked_at(self, rank: &Rank) -> bool {
        !self.in_evaluation && !rank.is_recording()
    }
}

impl Deferred {
    /// Returns true if the operation is recorded when it is computed.
    fn is_to_be_recorded(&self) -> bool {
        self.created.recorded && self.boundary.is_none()
    }

    /// Returns the numbers with the operation that was recorded at the boundary, if the value is at one.
    fn with_node(&self, computed: Computed) -> Computed {
        match &self.boundary {
            Some(boundary) => Computed { node: boundary.node.clone(), ..computed },
            None => computed,
        }
    }
}

impl Value {
    /// Returns true if the value is deferred, and what reads it now is an evaluation to which it does not belong. That
    /// leaves it as it is, as a [look](Self::look) does: ranks or runs of a segment that evaluate have the numbers of
    /// others.
    pub(in crate::autograd) fn is_looked_at(&self) -> bool {
        match &*self.0.state.borrow() {
            ValueState::Computed(_) => false,
            ValueState::Deferred(deferred) => deferred.created.is_looked_at(&self.0.rank),
        }
    }

    /// Returns the numbers, computed now if they were deferred, and the operation that made them.
    pub(crate) fn compute_with_node(&self) -> Computed {
        let mut state = self.0.state.borrow_mut();
        let computed = match &mut *state {
            ValueState::Computed(computed) => return computed.clone(),
            ValueState::Deferred(deferred) => {
                let known = deferred.peeked.take().filter(|_| deferred.is_outdated);
                let recorded = deferred.is_to_be_recorded();
                let computed = deferred.op.compute(&self.0.rank, self.len(), recorded, known);
                deferred.with_node(computed)
            }
        };
        *state = ValueState::Computed(computed.clone());
        computed
    }

    /// Returns the result of `visit` on the deferred operation, and where it was created, if it is a `T` that is still
    /// to be computed.
    pub(in crate::autograd) fn with_deferred<T: DeferredOp, R>(
        &self,
        visit: impl FnOnce(&mut T, DeferredIn) -> R,
    ) -> Option<R> {
        match &mut *self.0.state.borrow_mut() {
            ValueState::Computed(_) | ValueState::Deferred(Deferred { is_outdated: true, .. }) => {
                None
            }
            ValueState::Deferred(deferred) => {
                let created = deferred.created;
                let op: &mut dyn Any = &mut *deferred.op;
                op.downcast_mut().map(|op| visit(op, created))
            }
        }
    }

    /// Computes the deferred operation by `compute`, if it is a `T` that is still to be computed. Returns true then.
    pub(in crate::autograd) fn compute_deferred<T: DeferredOp>(
        &self,
        compute: impl FnOnce(&mut T, bool) -> Computed,
    ) -> bool {
        let recorded = match &*self.0.state.borrow() {
            ValueState::Computed(_) => return false,
            ValueState::Deferred(deferred) => deferred.is_to_be_recorded(),
        };
        let computed = self.with_deferred(|op, _| compute(op, recorded));
        let mut state = self.0.state.borrow_mut();
        let (Some(computed), ValueState::Deferred(deferred)) = (computed, &*state) else {
            return false;
        };
        *state = ValueState::Computed(deferred.with_node(computed));
        true
    }

    /// Makes a deferred value a leaf of the expressions that read it, recorded as `node` from now on.
    pub(in crate::autograd) fn put_at_boundary(&self, node: Option<NodeId>) {
        if let ValueState::Deferred(deferred) = &mut *self.0.state.borrow_mut() {
            deferred.boundary = Some(AtBoundary { node });
        }
    }

    /// Returns the operation as which a deferred value at a boundary is recorded; `None` if the value is not deferred,
    /// or not at a boundary.
    pub(in crate::autograd) fn node_at_boundary(&self) -> Option<Option<NodeId>> {
        match &*self.0.state.borrow() {
            ValueState::Computed(_) => None,
            ValueState::Deferred(deferred) => {
                deferred.boundary.as_ref().map(|boundary| boundary.node.clone())
            }
        }
    }
}
