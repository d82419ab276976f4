//! The gradient of a unit: added up in f32, then summed over ranks in the background.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::collections::BTreeSet;
use std::ops::Range;

use crate::backend::{Buffer, Category, DType, View};
use crate::comm::{Pending, ReduceOp};
use crate::layout::AxisSet;

use super::super::ParamRef;
use super::super::rank::fail;
use super::{FSDP, REPLICAS, Unit, ZeroLevel};

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
    whole: RefCell<Option<Buffer>>,
    shard: RefCell<Option<Buffer>>,
    stage: RefCell<Stage>,
    /// Whether anything was recorded that contributes in this backward.
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
            shard.typed_mut::<f32>().fill(0.0);
        }
    }

    /// Begins the backward of one micro-batch.
    pub(crate) fn begin_backward(&self) {
        self.gradient.started.set(false);
    }

    fn forget_shares(&self) {
        self.params().iter().for_each(ParamRef::begin_gradient);
    }

    /// The flat gradient of this rank, to be added to.
    pub(crate) fn gradient_mut(&self) -> RefMut<'_, [f32]> {
        let whole = RefMut::map(self.gradient.whole.borrow_mut(), |whole| {
            whole.get_or_insert_with(|| {
                self.rank.meter().alloc(DType::F32, self.len(), Category::Communication)
            })
        });
        RefMut::map(whole, Buffer::typed_mut)
    }

    /// The reduced gradient of the shard.
    pub(crate) fn reduced_gradient(&self) -> Ref<'_, [f32]> {
        const THERE: &str = "gradients are read after their reduction";
        if self.level() >= ZeroLevel::Gradients {
            let shard = self.gradient.shard.borrow();
            Ref::map(shard, |shard| shard.as_ref().expect(THERE).typed())
        } else {
            let whole = self.gradient.whole.borrow();
            Ref::map(whole, |whole| &whole.as_ref().expect(THERE).typed()[self.shard()])
        }
    }

    /// Hands this backward's share over to be summed over the ranks, in the background; it is complete on this rank.
    /// Below level 2, the shares of all micro-batches are added up first, and the last one hands them over.
    pub(crate) fn start_reduction(&self) {
        self.uses.set(0);
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
                gradient[param.range()].fill(0.0);
            }
            clear_gaps(&self.params(), &mut gradient);
            self.reduce_over_model_axes(&mut gradient);
        }
        if per_micro_batch {
            self.forget_shares();
        }
        if self.level() == ZeroLevel::Replicated {
            self.sum_replicas();
        } else {
            let payload = self.take_payload();
            let group = self.rank.group(FSDP);
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
        let group = self.rank.group(axes);
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
        self.payload_of(View::from(&*self.reduced_gradient()))
    }

    fn payload_of(&self, values: View<'_>) -> Buffer {
        let dtype = self.rank.reduce_dtype();
        let mut copy = self.rank.meter().alloc(dtype, values.len(), Category::Communication);
        self.rank.backend().cast(values, copy.view_mut());
        copy
    }

    /// Sums the gradients that are partial over further axes, as those of norms in a sequence-parallel stream are:
    /// small, and so taken together.
    fn reduce_over_model_axes(&self, gradient: &mut [f32]) {
        let (rank, params) = (&self.rank, self.params());
        let sets: BTreeSet<AxisSet> = params
            .iter()
            .map(|param| param.gradient_axes().minus(AxisSet::DATA))
            .filter(|axes| rank.degree_of(*axes) > 1)
            .collect();
        for axes in sets {
            let ranges: Vec<Range<usize>> = params
                .iter()
                .filter(|param| param.gradient_axes().minus(AxisSet::DATA) == axes)
                .map(ParamRef::range)
                .collect();
            let mut staging: Vec<f32> =
                ranges.iter().flat_map(|range| gradient[range.clone()].iter().copied()).collect();
            rank.all_reduce(
                axes,
                &self.site("gradient"),
                ReduceOp::Sum,
                staging.as_mut_slice().into(),
            );
            let mut rest = staging.as_slice();
            for range in ranges {
                let (head, tail) = rest.split_at(range.len());
                gradient[range].copy_from_slice(head);
                rest = tail;
            }
        }
    }
}

/// The gaps between parameters are zeros in every buffer, also where a buffer of another use was taken.
fn clear_gaps(params: &[ParamRef], gradient: &mut [f32]) {
    let ends = params.iter().map(|param| param.range().end);
    let starts = params.iter().skip(1).map(|param| param.range().start);
    let starts = starts.chain([gradient.len()]).collect::<Vec<_>>();
    for (end, start) in ends.zip(starts) {
        gradient[end..start].fill(0.0);
    }
}
