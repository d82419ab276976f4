//! The gradient of a unit: added up in f32, then summed over ranks in the background.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::collections::BTreeSet;
use std::ops::Range;

use crate::backend::{Buffer, Category, DType, View, ViewMut};
use crate::comm::{Pending, ReduceOp};
use crate::context::{ZeroLevel, fail};
use crate::layout::AxisSet;

use super::super::param::ParamRef;
use super::{FSDP, REPLICAS, Stretch, Unit};

/// Where the gradient of a unit is.
///
/// | level | `whole` | `shard` | reduced |
/// |---|---|---|---|
/// | 0 | always | | once per step: all-reduce of `whole` |
/// | 1 | always; at the end its shard holds the sum | | once per step: reduce-scatter of `whole` |
/// | 2, 3 | during backward | always | once per micro-batch: reduce-scatter, added to `shard` |
///
/// From level 1, the shards are summed over the replicas after that, once per step.
#[derive(Default)]
pub(super) struct Gradient {
    pub(super) whole: RefCell<Option<Buffer>>,
    pub(super) shard: RefCell<Option<Buffer>>,
    stage: RefCell<Stage>,
    /// Whether an operation has contributed in this backward, on any rank.
    pub(super) used: Cell<bool>,
    /// Whether this backward's share was handed over.
    started: Cell<bool>,
}

/// How far the sum over ranks is.
#[derive(Default)]
enum Stage {
    #[default]
    Settled,
    /// The reduce-scatter over the `fsdp` axis, and whether the replicas are to be summed after it.
    Scattering { pending: Pending, last: bool },
    /// The all-reduce over replicas.
    Summing(Pending),
}

impl Unit {
    pub(super) fn allocate_gradient(&self) {
        let rank = &self.rank;
        let zeros = |len| rank.meter().zeros(DType::F32, len, Category::Gradients);
        if self.level() >= ZeroLevel::Gradients {
            *self.gradient.shard.borrow_mut() = Some(zeros(self.shard().len()));
        } else {
            *self.gradient.whole.borrow_mut() = Some(zeros(self.len()));
        }
    }

    /// Begins the gradient of a step: nothing contributed yet. One that is still being summed, because nobody wanted
    /// the sum, is given up.
    pub(crate) fn begin_gradient(&self) {
        self.finish_reduction();
        self.forget_shares();
        if let Some(shard) = &mut *self.gradient.shard.borrow_mut() {
            shard.view_mut().clear();
        }
    }

    /// Begins the backward of one micro-batch.
    pub(crate) fn begin_backward(&self) {
        self.gradient.started.set(false);
    }

    /// Notes that an operation contributes to the gradient.
    pub(crate) fn contribute(&self) {
        self.gradient.used.set(true);
    }

    fn forget_shares(&self) {
        self.params().iter().for_each(ParamRef::begin_gradient);
    }

    /// The flat gradient of this rank, to be added to.
    pub(crate) fn gradient_mut(&self) -> RefMut<'_, Buffer> {
        RefMut::map(self.gradient.whole.borrow_mut(), |whole| {
            whole.get_or_insert_with(|| {
                self.rank.meter().alloc(DType::F32, self.len(), Category::Communication)
            })
        })
    }

    /// The reduced gradient of the shard.
    pub(crate) fn reduced_gradient(&self) -> Stretch<'_> {
        const THERE: &str = "gradients are read after their reduction";
        if self.level() >= ZeroLevel::Gradients {
            let shard = self.gradient.shard.borrow();
            let shard = Ref::map(shard, |shard| shard.as_ref().expect(THERE));
            Stretch::new(shard, 0..self.shard().len())
        } else {
            let whole = self.gradient.whole.borrow();
            Stretch::new(Ref::map(whole, |whole| whole.as_ref().expect(THERE)), self.shard())
        }
    }

    /// Hands this backward's share over to be summed over the ranks, in the background; it is complete on this rank.
    /// Below level 2, the shares of all micro-batches are added up first, and the last one hands them over.
    pub(crate) fn start_reduction(&self) {
        let last = self.rank.is_last_micro_batch();
        let per_micro_batch = self.level() >= ZeroLevel::Gradients;
        if self.is_empty() || !(last || per_micro_batch) || self.gradient.started.replace(true) {
            return;
        }
        self.rank.in_turn(&self.this);
        if per_micro_batch && !self.gradient.used.replace(false) {
            // No rank has a share in this backward.
            if last {
                self.sum_replicas();
            }
            return;
        }
        {
            let mut gradient = self.gradient_mut();
            for param in self.params().iter().filter(|param| param.take_missing_gradient()) {
                gradient.view_mut().slice(param.range()).clear();
            }
            clear_gaps(&self.params(), gradient.view_mut());
            self.reduce_over_model_axes(gradient.view_mut());
        }
        if per_micro_batch {
            self.forget_shares();
        }
        if self.level() == ZeroLevel::Replicated {
            self.sum_replicas();
        } else {
            let payload = self.take_payload();
            let group = self.rank.process_group(FSDP);
            let site = self.site("gradient");
            let pending = group.start_reduce_scatter_in_place(&site, payload, &self.cut());
            *self.gradient.stage.borrow_mut() = Stage::Scattering { pending, last };
        }
    }

    /// Takes in the result of the reduce-scatter, and passes it on to the replicas.
    pub(crate) fn advance(&self) {
        let stage = self.gradient.stage.take();
        let Stage::Scattering { pending, last } = stage else {
            *self.gradient.stage.borrow_mut() = stage;
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
        if last {
            self.sum_replicas();
        }
    }

    /// Waits until the gradient is the sum over all ranks.
    pub(crate) fn finish_reduction(&self) {
        self.advance();
        let stage = self.gradient.stage.take();
        let Stage::Summing(pending) = stage else { return };
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

    /// Starts the sum over the ranks that replicate the shard, if there are any.
    fn sum_replicas(&self) {
        let axes = if self.level() == ZeroLevel::Replicated { AxisSet::DATA } else { REPLICAS };
        let group = self.rank.process_group(axes);
        if group.size() == 1 {
            return;
        }
        let payload = match self.level() {
            ZeroLevel::Replicated => self.take_payload(),
            _ => self.reduced_copy(),
        };
        let pending = group.start_all_reduce(&self.site("gradient"), ReduceOp::Sum, payload);
        *self.gradient.stage.borrow_mut() = Stage::Summing(pending);
    }

    /// The flat gradient in the dtype of reductions: itself, or a copy.
    fn take_payload(&self) -> Buffer {
        let dtype = self.rank.reduce_dtype();
        let mut whole = self.gradient.whole.borrow_mut();
        let transient = self.level() >= ZeroLevel::Gradients;
        match whole.take() {
            Some(buffer) if dtype == DType::F32 => buffer,
            Some(buffer) => {
                let copy = self.payload_of(buffer.view());
                *whole = (!transient).then_some(buffer);
                copy
            }
            None => unreachable!("a complete gradient is handed over once"),
        }
    }

    fn reduced_copy(&self) -> Buffer {
        self.payload_of(self.reduced_gradient().view())
    }

    fn payload_of(&self, values: View<'_>) -> Buffer {
        let dtype = self.rank.reduce_dtype();
        let mut copy = self.rank.meter().alloc(dtype, values.len(), Category::Communication);
        self.rank.backend().cast(values, copy.view_mut());
        copy
    }

    /// Sums the gradients that are partial over further axes, as those of norms in a sequence-parallel stream are:
    /// small, and so taken together.
    fn reduce_over_model_axes(&self, mut gradient: ViewMut<'_>) {
        let (rank, params) = (&self.rank, self.params());
        let sets: BTreeSet<AxisSet> = params
            .iter()
            .map(|param| param.summed_over())
            .filter(|axes| rank.degree_of(*axes) > 1)
            .collect();
        for axes in sets {
            let ranges: Vec<Range<usize>> = params
                .iter()
                .filter(|param| param.summed_over() == axes)
                .map(ParamRef::range)
                .collect();
            let len = ranges.iter().map(Range::len).sum();
            let mut staging = rank.meter().alloc(DType::F32, len, Category::Communication);
            let places = || {
                let starts = ranges.iter().scan(0, |end, range| {
                    *end += range.len();
                    Some(*end - range.len())
                });
                ranges.iter().cloned().zip(starts)
            };
            for (range, start) in places() {
                let part = staging.view_mut().into_slice(start..start + range.len());
                rank.backend().cast(gradient.as_view().slice(range), part);
            }
            rank.all_reduce(axes, &self.site("gradient"), ReduceOp::Sum, staging.view_mut());
            for (range, start) in places() {
                let part = staging.view().slice(start..start + range.len());
                rank.backend().cast(part, gradient.slice(range));
            }
        }
    }
}

/// The gaps between parameters are zeros in every buffer, also where a buffer of another use was taken.
fn clear_gaps(params: &[ParamRef], mut gradient: ViewMut<'_>) {
    let ends = params.iter().map(|param| param.range().end);
    let starts = params.iter().skip(1).map(|param| param.range().start);
    let starts = starts.chain([gradient.len()]).collect::<Vec<_>>();
    for (end, start) in ends.zip(starts) {
        if start > end {
            gradient.slice(end..start).clear();
        }
    }
}
