//! Data parallelism (DDP): gradient reduction over the ranks that read other tokens, in the background, by all-reduce
//! at ZeRO stage 0 and reduce-scatter above. With replicas of the shards (hybrid sharding, HSDP) an all-reduce over
//! them follows.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use crate::context::{ZeroStage, fail};
use crate::layout::AxisSet;
use meshwright_backend::{Buffer, Category, DType, View, ViewMut};
use meshwright_comm::{PendingCall, ReduceOp};

use super::super::param_entry::ParamEntry;
use super::Unit;

/// Reduction of the gradient of one unit.
#[derive(Default)]
pub(super) struct UnitReduction {
    stage: RefCell<ReductionStage>,
    /// True if an operation of this backward has contributed, on any rank.
    has_contribution: Cell<bool>,
    /// True if the reduction of this backward's gradient has started.
    is_started: Cell<bool>,
    /// True if the last reduction of the step has started: nothing may be added to the gradient.
    is_complete: Cell<bool>,
    /// True after the first micro-batch of the step.
    has_first: Cell<bool>,
}

/// Collective of a gradient reduction that is in progress.
#[derive(Default)]
enum ReductionStage {
    #[default]
    Idle,
    /// The reduce-scatter over the axes that shard the unit, and whether the all-reduce over the replicas follows.
    ReduceScatter { pending: PendingCall, is_last: bool },
    /// The all-reduce over the replicas.
    AllReduce(PendingCall),
}

impl Unit {
    /// Begins the gradient of a step, without any contribution. A reduction still in progress, whose result was not
    /// used, is finished first.
    pub(crate) fn begin_gradient(&self) {
        self.finish_reduction();
        self.reset_contributions();
        self.reopen_gradient();
        self.gradient.is_tie_summed.set(false);
        self.reduction.has_first.set(false);
        if let Some(shard) = &mut *self.gradient.shard.borrow_mut() {
            shard.view_mut().clear();
        }
    }

    /// Begins the backward of one micro-batch.
    pub(crate) fn begin_backward(&self) {
        self.reduction.is_started.set(false);
    }

    /// Notes that an operation contributes to the gradient.
    ///
    /// # Panics
    /// If the gradient was declared complete before.
    #[doc(hidden)]
    pub fn note_contribution(&self) {
        assert!(
            !self.is_gradient_complete(),
            "the backward{} adds to the gradient of `{}` after its reduction over the ranks has started: the unit is \
             among those that an earlier pass was to complete, by `WeightGradients::Now {{ complete }}` or \
             `DeferredWeightGradients::compute_gradients`; list it with the last pass that reaches it",
            self.rank.backward_line(),
            self.name()
        );
        self.reduction.has_contribution.set(true);
    }

    /// Returns true if the last reduction of the step has started.
    pub(crate) fn is_gradient_complete(&self) -> bool {
        self.reduction.is_complete.get()
    }

    /// Allows further contributions to the gradient of the step.
    pub(crate) fn reopen_gradient(&self) {
        self.reduction.is_complete.set(false);
    }

    fn reset_contributions(&self) {
        self.entries().iter().for_each(|param| param.reset_gradient());
    }

    /// Starts the reduction of the gradient of a micro-batch, which is complete on this rank, in the background. Below
    /// ZeRO stage 2, micro-batches are accumulated first, and the last one, `is_last`, starts the reduction.
    pub(crate) fn start_reduction(&self, is_last: bool) {
        let per_micro_batch = self.stage() >= ZeroStage::Gradients;
        if self.rank.sums_first_squares()
            && !self.is_empty()
            && !self.reduction.has_first.replace(true)
        {
            self.add_first_squares();
        }
        if self.is_empty()
            || self.is_gradient_complete()
            || !(is_last || per_micro_batch)
            || self.reduction.is_started.replace(true)
        {
            return;
        }
        self.reduction.is_complete.set(is_last);
        self.rank.finish_earlier_reduce_scatters();
        if per_micro_batch && !self.reduction.has_contribution.replace(false) {
            // No rank contributes in this backward.
            if is_last {
                self.start_replica_all_reduce();
            }
            return;
        }
        {
            let mut gradient = self.gradient_mut();
            let params = self.entries();
            for param in params.iter().filter(|param| param.take_missing_gradient()) {
                gradient.view_mut().slice(param.range()).clear();
            }
            clear_gaps(&params, gradient.view_mut());
            self.reduce_over_further_axes(gradient.view_mut());
        }
        if per_micro_batch {
            self.reset_contributions();
        }
        if self.stage() == ZeroStage::Replicated {
            self.start_replica_all_reduce();
        } else {
            let payload = self.take_payload();
            let group = self.rank.process_group(self.shard_axes());
            let site = self.site("gradient");
            let pending = group.start_reduce_scatter_in_place(&site, payload, &self.shard_blocks());
            *self.reduction.stage.borrow_mut() = ReductionStage::ReduceScatter { pending, is_last };
            if self.reduces_in_own_memory() || self.has_replicas() {
                self.rank.note_reduce_scatter(&self.this);
            }
        }
    }

    /// Waits for the reduce-scatter, if it is in progress, and starts the all-reduce over the replicas.
    pub(in super::super) fn finish_reduce_scatter(&self) {
        let stage = self.reduction.stage.take();
        let ReductionStage::ReduceScatter { pending, is_last } = stage else {
            *self.reduction.stage.borrow_mut() = stage;
            return;
        };
        let arrived = pending.wait().unwrap_or_else(|error| fail(error));
        let backend = self.rank.backend();
        let sum = arrived.view().slice(self.shard());
        if let Some(shard) = &mut *self.gradient.shard.borrow_mut() {
            backend.add_assign(shard.view_mut(), sum);
        } else if arrived.dtype() == DType::F32 {
            *self.gradient.whole.borrow_mut() = Some(arrived);
        } else if let Some(whole) = &mut *self.gradient.whole.borrow_mut() {
            backend.cast(sum, whole.view_mut().into_slice(self.shard()));
        }
        if is_last {
            self.start_replica_all_reduce();
        }
    }

    /// Waits until the gradient is the sum over all ranks.
    pub(crate) fn finish_reduction(&self) {
        self.finish_reduce_scatter();
        let stage = self.reduction.stage.take();
        let ReductionStage::AllReduce(pending) = stage else { return };
        let arrived = pending.wait().unwrap_or_else(|error| fail(error));
        let backend = self.rank.backend();
        let mut shard = self.gradient.shard.borrow_mut();
        let mut whole = self.gradient.whole.borrow_mut();
        match (&mut *shard, &mut *whole) {
            (Some(shard), _) => backend.cast(arrived.view(), shard.view_mut()),
            (None, Some(whole)) => {
                backend.cast(arrived.view(), whole.view_mut().into_slice(self.shard()));
            }
            (None, whole) => *whole = Some(arrived),
        }
    }

    /// Starts the all-reduce over the ranks that replicate the shard, if there are any.
    fn start_replica_all_reduce(&self) {
        if !self.has_replicas() {
            return;
        }
        let group = self.rank.process_group(self.replica_axes());
        let payload = if self.stage() == ZeroStage::Replicated {
            self.take_payload()
        } else {
            self.copy_payload(self.reduced_gradient().view())
        };
        let pending = group.start_all_reduce(&self.site("gradient"), ReduceOp::Sum, payload);
        *self.reduction.stage.borrow_mut() = ReductionStage::AllReduce(pending);
    }

    /// Returns the axes whose ranks hold the same shard.
    fn replica_axes(&self) -> AxisSet {
        self.sum_axes().difference(self.shard_axes())
    }

    /// Returns true if other ranks hold the same shard.
    fn has_replicas(&self) -> bool {
        self.rank.degree_of(self.replica_axes()) > 1
    }

    /// Returns true if the memory of a gradient that is being reduced is free after it.
    fn reduces_in_own_memory(&self) -> bool {
        self.stage() >= ZeroStage::Gradients || self.rank.reduce_dtype() != DType::F32
    }

    /// Removes and returns the flat gradient in the reduce dtype: the buffer itself, or a copy.
    fn take_payload(&self) -> Buffer {
        let dtype = self.rank.reduce_dtype();
        if dtype != DType::F32 {
            self.rank.make_room_for_gradient();
        }
        let mut whole = self.gradient.whole.borrow_mut();
        let is_transient = self.stage() >= ZeroStage::Gradients;
        match whole.take() {
            Some(buffer) if dtype == DType::F32 => buffer,
            Some(buffer) => {
                let copy = self.copy_payload(buffer.view());
                *whole = (!is_transient).then_some(buffer);
                copy
            }
            None => unreachable!("the reduction of a complete gradient starts once"),
        }
    }

    fn copy_payload(&self, values: View<'_>) -> Buffer {
        let dtype = self.rank.reduce_dtype();
        let mut copy = self.rank.allocator().alloc(dtype, values.len(), Category::Communication);
        self.rank.backend().cast(values, copy.view_mut());
        copy
    }

    /// Returns the axes over which the gradient of a parameter is partial, besides those over which all of the unit is
    /// summed.
    fn further_axes(&self, param: &ParamEntry) -> AxisSet {
        param.reduce_axes.get().difference(self.sum_axes())
    }

    /// Reduces the gradients that are partial over further axes, such as the gradients of norms in a sequence-parallel
    /// stream: they are small, and staged into one all-reduce per set of axes.
    fn reduce_over_further_axes(&self, mut gradient: ViewMut<'_>) {
        let rank = &self.rank;
        for (sum, places) in self.sums_over_further_axes(gradient.as_view()) {
            for (range, start) in places {
                let part = sum.view().slice(start..start + range.len());
                rank.backend().cast(part, gradient.slice(range));
            }
        }
    }

    /// Returns the sums of the gradients that are partial over further axes, each with the ranges of the unit that it
    /// holds, and their places in it.
    pub(super) fn sums_over_further_axes(
        &self,
        gradient: View<'_>,
    ) -> Vec<(Buffer, Vec<(Range<usize>, usize)>)> {
        let (rank, params) = (&self.rank, self.entries());
        let sets: BTreeSet<AxisSet> = params
            .iter()
            .map(|param| self.further_axes(param))
            .filter(|axes| rank.degree_of(*axes) > 1)
            .collect();
        let sum_over = |axes: AxisSet| {
            let ranges: Vec<Range<usize>> = params
                .iter()
                .filter(|param| self.further_axes(param) == axes)
                .map(|param| param.range())
                .collect();
            let len = ranges.iter().map(Range::len).sum();
            let mut staging = rank.allocator().alloc(DType::F32, len, Category::Communication);
            let starts = ranges.iter().scan(0, |end, range| {
                *end += range.len();
                Some(*end - range.len())
            });
            let places: Vec<_> = ranges.iter().cloned().zip(starts).collect();
            for (range, start) in &places {
                let part = staging.view_mut().into_slice(*start..*start + range.len());
                rank.backend().cast(gradient.slice(range.clone()), part);
            }
            rank.all_reduce(axes, &self.site("gradient"), ReduceOp::Sum, staging.view_mut());
            (staging, places)
        };
        sets.into_iter().map(sum_over).collect()
    }
}

/// Clears the alignment gaps between parameters: they are zeros in every buffer, also in recycled memory.
fn clear_gaps(params: &[Rc<ParamEntry>], mut gradient: ViewMut<'_>) {
    let ends = params.iter().map(|param| param.range().end);
    let starts = params.iter().skip(1).map(|param| param.range().start);
    let starts = starts.chain([gradient.len()]).collect::<Vec<_>>();
    for (end, start) in ends.zip(starts) {
        if start > end {
            gradient.slice(end..start).clear();
        }
    }
}
