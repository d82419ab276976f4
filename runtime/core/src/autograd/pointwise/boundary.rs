//! Values at the boundaries of segments and stages.

use crate::context::BoundaryId;

use super::super::value::Value;
use super::expression::Pointwise;

impl Value {
    /// Returns the value as it is behind a boundary: a leaf of the expressions that read it, and the result of an
    /// operation of its own, which sums the gradients of these readers before it passes them on. The model may be cut
    /// at the boundary `stage`, if one is given.
    pub(crate) fn at_boundary(&self, stage: Option<BoundaryId>) -> Value {
        let rank = self.rank();
        if self.has_origin() {
            return Value::constant(rank, self.extents().to_vec(), self.compute_with_node().data);
        }
        let is_recording = rank.records_operations();
        if is_recording && self.is_unrecorded() {
            // Operations that read it report the error.
            return self.clone();
        }
        self.compute_matmuls();
        if self.is_deferred_sum() {
            return self.sum_at_boundary(stage);
        }
        if !is_recording {
            if !self.is_recorded() && !self.is_looked_at() {
                self.compute_with_node();
            }
            return self.clone();
        }
        match self.compute_with_node().node {
            Some(node) => self.passed_by(rank.tape().record_identity(node, stage, self.len())),
            None => self.clone(),
        }
    }

    /// Returns a deferred sum as it is behind a boundary. It stays deferred, because a kernel may compute it together
    /// with what reads it, but its place on the tape is that of a computed one.
    fn sum_at_boundary(&self, stage: Option<BoundaryId>) -> Value {
        let rank = self.rank();
        let node = self.node_at_boundary().unwrap_or_else(|| {
            let is_recorded = self.is_recorded();
            let record = |sum: &mut Pointwise, _| sum.record_early(rank);
            let node = is_recorded.then(|| self.with_deferred(record)).flatten().flatten();
            self.put_at_boundary(node.clone());
            node
        });
        let Some(node) = node else { return self.clone() };
        let passed = Value::deferred(rank, self.extents().to_vec(), Pointwise::leaf(self.clone()));
        let node = rank.tape().record_identity(node, stage, self.len());
        passed.put_at_boundary(Some(node));
        passed
    }

    /// Returns the deferred sum that this value passes across a boundary.
    pub(super) fn before_boundary(&self) -> Option<Value> {
        self.with_deferred(|pointwise: &mut Pointwise, _| pointwise.as_value().cloned()).flatten()
    }
}
