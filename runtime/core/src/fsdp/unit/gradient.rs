//! The gradient buffers of an FSDP unit, and the backward pass that owns them.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::panic::Location;

use crate::context::ZeroStage;
use meshwright_backend::{Buffer, Category, DType, ViewMut};

use super::{Unit, UnitSlice};

/// Gradient buffers of a unit, in f32.
///
/// | ZeRO stage | `whole` | `shard` | reduced |
/// |---|---|---|---|
/// | 0 | always | | once per step: all-reduce of `whole` |
/// | 1 | always; at the end its shard holds the sum | | once per step: reduce-scatter of `whole` |
/// | 2, 3 | during backward | always | once per micro-batch: reduce-scatter, added to `shard` |
///
/// From stage 1, the shards are all-reduced over the replicas after that, once per step.
#[derive(Default)]
pub(super) struct Gradient {
    pub(super) whole: RefCell<Option<Buffer>>,
    pub(super) shard: RefCell<Option<Buffer>>,
    /// True if the gradient is summed over the owning pipeline stages.
    pub(super) is_tie_summed: Cell<bool>,
}

/// The backward pass whose gradients a unit holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GradientOwner {
    /// Number of the backward pass.
    pub number: u64,
    /// Line of the first `backward` of the step.
    pub line: &'static Location<'static>,
    /// True until the gradients are reduced over the ranks.
    pub is_pending: bool,
}

impl Unit {
    pub(super) fn allocate_gradient(&self) {
        let rank = &self.rank;
        let zeros = |len| rank.allocator().zeros(DType::F32, len, Category::Gradients);
        if self.stage() >= ZeroStage::Gradients {
            *self.gradient.shard.borrow_mut() = Some(zeros(self.shard().len()));
        } else {
            *self.gradient.whole.borrow_mut() = Some(zeros(self.len()));
        }
    }

    /// Returns this rank's flat gradient, to accumulate into.
    pub(crate) fn gradient_mut(&self) -> RefMut<'_, Buffer> {
        if self.gradient.whole.borrow().is_none() {
            self.rank.make_room_for_gradient();
        }
        RefMut::map(self.gradient.whole.borrow_mut(), |whole| {
            whole.get_or_insert_with(|| {
                self.rank.allocator().alloc(DType::F32, self.len(), Category::Communication)
            })
        })
    }

    /// Returns the reduced gradient of the shard.
    #[doc(hidden)]
    pub fn reduced_gradient(&self) -> UnitSlice<'_> {
        const REDUCED: &str = "gradients are read after their reduction";
        if self.stage() >= ZeroStage::Gradients {
            let shard = self.gradient.shard.borrow();
            let shard = Ref::map(shard, |shard| shard.as_ref().expect(REDUCED));
            UnitSlice::new(shard, 0..self.shard().len())
        } else {
            let whole = self.gradient.whole.borrow();
            UnitSlice::new(Ref::map(whole, |whole| whole.as_ref().expect(REDUCED)), self.shard())
        }
    }

    /// Calls `visit` with the reduced gradient of the shard, summed over the owning pipeline stages by it.
    ///
    /// # Panics
    /// If the gradient is already summed over the owners.
    #[track_caller]
    #[doc(hidden)]
    pub fn sum_over_owners(&self, visit: impl FnOnce(ViewMut<'_>)) {
        assert!(
            !self.gradient.is_tie_summed.replace(true),
            "the gradient of `{}` is already summed over its owning stages",
            self.name()
        );
        if let Some(shard) = &mut *self.gradient.shard.borrow_mut() {
            visit(shard.view_mut());
        } else if let Some(whole) = &mut *self.gradient.whole.borrow_mut() {
            visit(whole.view_mut().into_slice(self.shard()));
        }
    }

    /// Checks that the gradient of a unit with several owning pipeline stages is summed over them.
    ///
    /// # Panics
    /// If it is not.
    #[track_caller]
    pub(crate) fn check_tie_summed(&self) {
        if let Some(owners) = self.owners().filter(|owners| owners.ranks().len() > 1) {
            assert!(
                self.gradient.is_tie_summed.get(),
                "the gradient of `{}`, which is tied across pipeline {owners}, is not summed over them: call \
                 `sum_tied_gradients` before `reduce`",
                self.name()
            );
        }
    }

    /// Sets the backward pass whose gradients the unit holds from now on.
    pub(crate) fn set_gradient_owner(&self, owner: GradientOwner) {
        self.gradient_owner.set(Some(owner));
    }

    /// Returns the backward pass whose gradients the unit holds.
    pub(crate) fn gradient_owner(&self) -> Option<GradientOwner> {
        self.gradient_owner.get()
    }

    /// Returns true if the unit holds the gradients of backward pass `number`.
    pub(crate) fn has_gradient_of(&self, number: u64) -> bool {
        self.gradient_owner().is_some_and(|owner| owner.number == number)
    }

    /// Discards the gradients that the unit holds.
    pub(crate) fn discard_gradient(&self) {
        self.finish_reduction();
        self.gradient_owner.set(None);
    }
}
