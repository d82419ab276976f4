//! Gradients of the results of recorded operations.

use std::sync::Arc;

use crate::context::{Rank, scope};
use meshwright_backend::{Buffer, ViewMut};

use super::NodeId;

/// Gradients of the results of recorded operations, while backward runs.
pub(crate) struct TapeGradients<'a> {
    pub(crate) rank: &'a Rank,
    /// Operations by their serial numbers, in order, and the gradients of their results so far.
    pub(super) slots: Vec<(u64, Option<Arc<Buffer>>)>,
    /// Initial gradient of the losses that backward began with, also of a segment; `None` for weight gradients.
    pub(in super::super) seed: Option<LossSeed>,
    /// Deferred weight gradients in order, or `None` if they are computed immediately.
    pub(super) deferred: Option<Vec<WeightGradientJob>>,
}

/// Initial gradient of the losses of a backward.
#[derive(Clone)]
pub(in super::super) struct LossSeed {
    /// One element, which is 1.
    pub(in super::super) gradient: Arc<Buffer>,
    /// Factor of the sums of the losses.
    pub(in super::super) factor: LossFactor,
}

/// Factor of the losses that a backward pass begins with, which its auxiliary losses have too.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LossFactor {
    /// The gradient of each sum is this factor.
    Same(f32),
    /// Losses have different factors.
    Different,
}

impl LossFactor {
    /// Factor of losses without weights.
    pub const ONE: LossFactor = LossFactor::Same(1.0);

    /// Returns the factor of the losses of both.
    pub(crate) fn and(self, other: LossFactor) -> LossFactor {
        if self == other { self } else { LossFactor::Different }
    }
}

/// Computation of the gradients of a weight, and of the bias added to its result.
pub(in super::super) type WeightGradientJob = Box<dyn FnOnce(&TapeGradients<'_>)>;

impl TapeGradients<'_> {
    /// Computes the gradient of a weight by `job`: now, or if weight gradients are deferred, after backward.
    pub(crate) fn weight_gradient(&mut self, job: impl FnOnce(&TapeGradients<'_>) + 'static) {
        match &mut self.deferred {
            Some(jobs) => {
                let location = scope::current_location();
                jobs.push(Box::new(move |gradients| {
                    let outer = scope::set_backward_location(location);
                    job(gradients);
                    scope::set_backward_location(outer);
                }));
            }
            None => job(self),
        }
    }

    /// Returns true if weight gradients are computed after backward.
    pub(in super::super) fn defers_weight_gradients(&self) -> bool {
        self.deferred.is_some()
    }

    /// Adds a gradient of the result of `node`. A gradient may be shared by several nodes; it is copied only when
    /// another one is added to it while it has other owners.
    pub(crate) fn add_gradient(&mut self, node: &NodeId, gradient: Arc<Buffer>) {
        let slot = self.gradient_slot(node);
        match self.slots[slot].1.take() {
            None => self.slots[slot].1 = Some(gradient),
            Some(sum) => {
                let mut sum = self.rank.unshare(sum);
                self.rank.backend().add_assign(sum.view_mut(), gradient.view());
                self.slots[slot].1 = Some(Arc::new(sum));
            }
        }
    }

    /// Returns a gradient as an unshared buffer, to be changed in place.
    pub(crate) fn unshared_gradient(&self, gradient: Arc<Buffer>) -> Buffer {
        self.rank.unshare(gradient)
    }

    /// Calls `write` with the gradient of the result of `node`, of `len` elements, and whether to accumulate into it.
    pub(crate) fn accumulate(
        &mut self,
        node: &NodeId,
        len: usize,
        write: impl FnOnce(ViewMut<'_>, bool),
    ) {
        let (mut sum, accumulate) = self.take_gradient(node, len);
        write(sum.view_mut(), accumulate);
        self.put_gradient(node, sum);
    }

    /// Removes the gradient of the result of `node` so far, to be added to and [put](Self::put_gradient) back, and
    /// returns whether there is any. If not, all of its `len` elements have to be written.
    pub(in super::super) fn take_gradient(&mut self, node: &NodeId, len: usize) -> (Buffer, bool) {
        let slot = self.gradient_slot(node);
        match self.slots[slot].1.take() {
            Some(sum) => (self.rank.unshare(sum), true),
            None => (self.rank.alloc_activation(len), false),
        }
    }

    pub(in super::super) fn put_gradient(&mut self, node: &NodeId, sum: Buffer) {
        let slot = self.gradient_slot(node);
        self.slots[slot].1 = Some(Arc::new(sum));
    }

    /// Returns the number in `gradient`, the gradient of a loss. The initial gradient of a loss is known without
    /// waiting for the device.
    pub(crate) fn scalar_gradient(&self, gradient: &Arc<Buffer>) -> f32 {
        match &self.seed {
            Some(seed) if Arc::ptr_eq(&seed.gradient, gradient) => 1.0,
            _ => gradient.view().to_vec::<f32>()[0],
        }
    }

    fn gradient_slot(&self, node: &NodeId) -> usize {
        self.find(node.serial).unwrap_or_else(|| {
            panic!(
                "the backward{} reaches a tensor whose operations are no longer recorded: another backward has passed \
                 through them, or the tensor has entered or left a recomputed segment or a `ForwardPass` \
                 otherwise than as its input or result; differentiate losses that share operations together, \
                 `a.and(b).backward()`, or compute the tensor again for each of them; pass tensors to a segment \
                 through its `forward`",
                self.rank.backward_line()
            )
        })
    }

    /// Returns the slot of an operation, if it is recorded on the tape.
    pub(super) fn find(&self, serial: u64) -> Option<usize> {
        self.slots.binary_search_by_key(&serial, |(serial, _)| *serial).ok()
    }
}
