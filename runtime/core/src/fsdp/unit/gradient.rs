//! The gradient buffers of an FSDP unit, and the backward pass that owns them.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::ops::Range;
use std::panic::Location;

use crate::context::ZeroStage;
use crate::layout::AxisSet;
use meshwright_backend::{Buffer, Category, DType, StateRounding, View, ViewMut};

use super::{Unit, UnitSlice};

/// Gradient buffers of a unit: `whole` in f32, and `kept` in the dtype of gradients.
///
/// | ZeRO stage | `whole` | `kept` | reduced |
/// |---|---|---|---|
/// | 0 | always | | once per step: all-reduce of `whole` |
/// | 1 | always; at the end its shard holds the sum | | once per step: reduce-scatter of `whole` |
/// | 0, bf16 | during backward | always | once per step: all-reduce of a copy of `kept` |
/// | 1, bf16 | during backward | always; at the end its shard holds the sum | once per step: reduce-scatter of a copy |
/// | 2, 3 | during backward | always, the shard | once per micro-batch: reduce-scatter, added to `kept` |
///
/// From stage 1, the shards are all-reduced over the replicas after that, once per step.
#[derive(Default)]
pub(super) struct Gradient {
    pub(super) whole: RefCell<Option<Buffer>>,
    pub(super) kept: RefCell<Option<Buffer>>,
    /// Number of times that the gradient was rounded in this step.
    pub(super) roundings: Cell<u64>,
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
        let zeros = |dtype, len| rank.allocator().zeros(dtype, len, Category::Gradients);
        if self.is_gradient_transient() {
            *self.gradient.kept.borrow_mut() =
                Some(zeros(rank.gradient_dtype(), self.kept().len()));
        } else {
            *self.gradient.whole.borrow_mut() = Some(zeros(DType::F32, self.len()));
        }
    }

    /// Returns true if the whole gradient exists only during backward, and the sum of micro-batches is kept apart.
    pub(super) fn is_gradient_transient(&self) -> bool {
        self.stage() >= ZeroStage::Gradients || self.rank.gradient_dtype() != DType::F32
    }

    /// Returns the range of the flat buffers that `kept` holds.
    fn kept(&self) -> Range<usize> {
        if self.stage() >= ZeroStage::Gradients { self.shard() } else { 0..self.len() }
    }

    /// Stores `values` of a range of the flat buffers in `kept`, or adds them to it. They are partial over `axes`.
    pub(super) fn keep_gradient(
        &self,
        range: Range<usize>,
        values: View<'_>,
        accumulate: bool,
        axes: AxisSet,
    ) {
        let mut kept = self.gradient.kept.borrow_mut();
        let Some(kept) = &mut *kept else { return };
        let start = self.kept().start;
        let kept = kept.view_mut().into_slice(range.start - start..range.end - start);
        let backend = self.rank.backend();
        match kept.dtype() {
            DType::F32 if accumulate => backend.add_assign(kept, values),
            DType::F32 => backend.cast(values, kept),
            _ => {
                let rounding = self.next_rounding(&range, axes);
                backend.round_state(0, values, accumulate, kept, &rounding);
            }
        }
    }

    /// Returns the rounding of a range of the gradient, which differs from all others of the step. Ranks along `axes`,
    /// whose values will be added, round by different bits, so that the sum of their errors is smaller.
    fn next_rounding(&self, range: &Range<usize>, axes: AxisSet) -> Vec<StateRounding> {
        let count = self.gradient.roundings.get();
        self.gradient.roundings.set(count + 1);
        // Counts as a read of the step: work whose bits differ from step to step is not captured in a CUDA graph.
        let step = self.rank.step();
        let position = self.rank.position(axes) as u64;
        self.state_rounding("gradient", range, &[step, count, position])
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

    /// Returns the reduced gradient of the shard, in the dtype of gradients.
    #[doc(hidden)]
    pub fn reduced_gradient(&self) -> UnitSlice<'_> {
        const REDUCED: &str = "gradients are read after their reduction";
        if self.is_gradient_transient() {
            let kept = self.gradient.kept.borrow();
            let kept = Ref::map(kept, |kept| kept.as_ref().expect(REDUCED));
            let (start, shard) = (self.kept().start, self.shard());
            UnitSlice::new(kept, shard.start - start..shard.end - start)
        } else {
            let whole = self.gradient.whole.borrow();
            UnitSlice::new(Ref::map(whole, |whole| whole.as_ref().expect(REDUCED)), self.shard())
        }
    }

    /// Calls `visit` with the reduced gradient of the shard in f32, summed over the owning pipeline stages by it.
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
        if self.rank.gradient_dtype() != DType::F32 {
            let mut sum = self.rank.alloc_scratch(DType::F32, self.shard().len());
            self.rank.backend().cast(self.reduced_gradient().view(), sum.view_mut());
            visit(sum.view_mut());
            self.keep_gradient(self.shard(), sum.view(), false, AxisSet::NONE);
        } else if let Some(kept) = &mut *self.gradient.kept.borrow_mut() {
            visit(kept.view_mut());
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
