//! Updates of flat slices: consecutive parameters of one group, with their gradient and optimizer state.

use std::ops::Range;

use crate::tensor::ParamRef;
use meshwright_backend::{Buffer, DType, UpdateOperands, View, ViewMut};

use super::expression::{ElementValue, Recorder};
use super::made_up_shard::MadeUpShard;
use super::slice_buffers::{SliceBuffers, SliceOperands};
use super::slice_param::SliceParam;
use super::unit_state::{GroupRange, UnitState};
use super::{Group, OptimizerStep};

/// This rank's elements of consecutive parameters of one group, to be updated once.
pub struct FlatSlice<'a> {
    step: &'a OptimizerStep<'a>,
    buffers: SliceBuffers<'a>,
    range: GroupRange,
}

/// Consecutive slices of a unit, to be updated once each.
pub struct FlatSlices<'a> {
    step: &'a OptimizerStep<'a>,
    buffers: SliceBuffers<'a>,
    /// The ranges of the slices, at least one, in the order of the unit.
    ranges: Vec<GroupRange>,
}

/// Proof that a [`FlatSlice`] was updated: only its `update_` functions return one.
#[derive(Debug)]
#[must_use = "an update rule returns it"]
pub struct Updated(());

/// Operands of an update by kernels of the caller's own, all of one length.
pub struct SliceViews<'v, const N: usize> {
    /// Parameters, f32.
    pub params: ViewMut<'v>,
    /// Their gradient, f32, to be multiplied by [`OptimizerStep::grad_scale`].
    pub gradient: View<'v>,
    /// States of the requested kinds, f32; a state that is stored in bf16 is widened before, and rounded after.
    pub states: [ViewMut<'v>; N],
}

impl UnitState {
    /// Returns this rank's elements of one parameter in `group`, for a [`ModelUpdate`](super::ModelUpdate); `None` if
    /// it owns none.
    pub fn param_slice<'a>(
        &'a mut self,
        step: &'a OptimizerStep<'a>,
        param: &ParamRef,
        group: Group,
    ) -> Option<FlatSlice<'a>> {
        let (range, in_shard) = self.unit().in_shard(param.range())?;
        Some(FlatSlice::new(step, self, GroupRange { group, range, in_shard }))
    }
}

impl<'a> FlatSlices<'a> {
    pub(super) fn new(
        step: &'a OptimizerStep<'a>,
        state: &'a mut UnitState,
        ranges: &[GroupRange],
    ) -> FlatSlices<'a> {
        FlatSlices { step, buffers: SliceBuffers::Unit(state), ranges: ranges.to_vec() }
    }

    /// Creates the slice of all elements of `shard`.
    pub(super) fn made_up(
        step: &'a OptimizerStep<'a>,
        shard: &'a mut MadeUpShard,
        range: GroupRange,
    ) -> FlatSlices<'a> {
        FlatSlices { step, buffers: SliceBuffers::MadeUp(shard), ranges: vec![range] }
    }

    /// Updates the slices one after another.
    pub fn each(mut self, mut update: impl FnMut(FlatSlice<'_>) -> Updated) -> Updated {
        for range in self.ranges {
            let (step, buffers) = (self.step, self.buffers.reborrow());
            let Updated(()) = update(FlatSlice { step, buffers, range });
        }
        Updated(())
    }

    /// Returns the inputs that are the same for all parameters.
    pub(super) fn step(&self) -> &'a OptimizerStep<'a> {
        self.step
    }

    /// Returns the group of each slice, with its elements up to the next one. The gaps between parameters are zeros in
    /// every buffer, and an update keeps them so.
    pub(super) fn groups(&self) -> Vec<(Group, usize)> {
        let ends = self.ranges.iter().skip(1).map(|next| next.range.start);
        let ends = ends.chain(self.ranges.last().map(|last| last.range.end));
        self.ranges
            .iter()
            .zip(ends)
            .map(|(range, end)| (range.group, end - range.range.start))
            .collect()
    }

    /// Updates all slices, which have the same kinds of state, by one kernel, as
    /// [`FlatSlice::update_fused`] does one.
    pub(super) fn update_fused<const N: usize>(
        self,
        kinds: [&str; N],
        kernel: impl FnOnce(SliceOperands<'_, N>),
    ) -> Updated {
        let [first, last] = [&self.ranges[0], &self.ranges[self.ranges.len() - 1]];
        let range = first.range.start..last.range.end;
        let in_shard = first.in_shard.start..last.in_shard.end;
        self.buffers.update_range(self.step, range, in_shard, kinds, kernel);
        Updated(())
    }
}

impl<'a> From<FlatSlice<'a>> for FlatSlices<'a> {
    fn from(slice: FlatSlice<'a>) -> FlatSlices<'a> {
        let FlatSlice { step, buffers, range } = slice;
        FlatSlices { step, buffers, ranges: vec![range] }
    }
}

impl<'a> FlatSlice<'a> {
    pub(super) fn new(
        step: &'a OptimizerStep<'a>,
        state: &'a mut UnitState,
        range: GroupRange,
    ) -> FlatSlice<'a> {
        FlatSlice { step, buffers: SliceBuffers::Unit(state), range }
    }

    /// Returns the inputs that are the same for all parameters.
    pub fn step(&self) -> &'a OptimizerStep<'a> {
        self.step
    }

    /// Returns the group of the parameters.
    pub fn group(&self) -> Group {
        self.range.group
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.range.range.len()
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.range.range.is_empty()
    }

    /// Returns the learning rate of the group.
    pub fn lr(&self) -> f64 {
        self.step.lr_of(self.range.group)
    }

    /// Returns `weight_decay` if weight decay applies to the group, else 0.
    pub fn weight_decay(&self, weight_decay: f64) -> f64 {
        self.range.group.weight_decay(weight_decay)
    }

    /// Updates every element by the same expression of its parameter, its gradient and its states of `kinds`, in one
    /// fused kernel: `rule` returns the new parameter and the new states.
    ///
    /// The expression gives the same bits on every CPU and GPU. Numbers such as the learning rate may change from step
    /// to step; a GPU compiles a kernel for each structure of the expression, not for each number.
    ///
    /// # Panics
    /// If `kinds` are not exactly the kinds of state of the group.
    pub fn update_elementwise<const N: usize>(
        self,
        kinds: [&str; N],
        rule: impl for<'e> FnOnce(
            ElementValue<'e>,
            ElementValue<'e>,
            [ElementValue<'e>; N],
        ) -> (ElementValue<'e>, [ElementValue<'e>; N]),
    ) -> Updated {
        let step = self.step;
        let expr = Recorder::default().record(step.grad_scale(), rule);
        self.update_fused(kinds, |operands| {
            let SliceOperands { params: param, gradient, states, rounding, copy } = operands;
            let states = states.into();
            let operands = UpdateOperands { param, gradient, states, rounding, copy };
            step.rank().backend().apply_update(&expr, operands);
        })
    }

    /// Updates the elements by kernels of the caller's own, which read and write [`SliceViews`].
    ///
    /// Each element of the update follows from that element, its [position](Self::params) and the step alone: a slice
    /// is the part of a shard, so its length, and sums and norms over it, depend on the mesh and the ZeRO stage. The
    /// first step checks it. [`UpdateRule::model_update`](super::UpdateRule::model_update) can sum over the
    /// [owners](ParamRef::owner_axes) of a parameter.
    ///
    /// # Panics
    /// If `kinds` are not exactly the kinds of state of the group.
    pub fn update_views<const N: usize>(
        self,
        kinds: [&str; N],
        kernels: impl FnOnce(SliceViews<'_, N>),
    ) -> Updated {
        let step = self.step;
        let (rank, backend) = (step.rank(), step.rank().backend());
        self.update_fused(kinds, |operands| {
            let SliceOperands { mut params, gradient, mut states, rounding, copy } = operands;
            let mut wide = None;
            if gradient.dtype() != DType::F32 {
                let wide: &mut Buffer = wide.insert(rank.alloc_scratch(DType::F32, gradient.len()));
                backend.cast(gradient, wide.view_mut());
            }
            let gradient = wide.as_ref().map_or(gradient, Buffer::view);
            if rounding.is_empty() {
                kernels(SliceViews { params: params.reborrow(), gradient, states });
            } else {
                let mut wide = states.each_ref().map(|state| {
                    let mut wide = rank.alloc_scratch(DType::F32, state.len());
                    backend.cast(state.as_view(), wide.view_mut());
                    wide
                });
                let views = wide.each_mut().map(|wide| wide.view_mut());
                kernels(SliceViews { params: params.reborrow(), gradient, states: views });
                for (index, (wide, state)) in wide.iter_mut().zip(&mut states).enumerate() {
                    backend.round_state(index, wide.view(), false, state.reborrow(), rounding);
                }
            }
            if let Some(copy) = copy {
                backend.cast(params.as_view(), copy);
            }
        })
    }

    /// Updates the elements by a kernel that also writes the copy of the new parameters in the compute dtype, if there
    /// is one.
    pub(super) fn update_fused<const N: usize>(
        self,
        kinds: [&str; N],
        kernel: impl FnOnce(SliceOperands<'_, N>),
    ) -> Updated {
        let GroupRange { range, in_shard, .. } = self.range;
        self.buffers.update_range(self.step, range, in_shard, kinds, kernel);
        Updated(())
    }

    /// Moves the parameters by a kernel that needs neither gradient nor state.
    pub(super) fn change_params(self, kernel: impl FnOnce(ViewMut<'_>, Option<ViewMut<'_>>)) {
        if let SliceBuffers::Unit(state) = self.buffers {
            state.unit().change_values(self.range.range, kernel);
        }
    }

    /// Returns the parameters of the slice, in order, with the positions of their elements in the whole parameter.
    pub fn params(&self) -> Vec<SliceParam> {
        match &self.buffers {
            SliceBuffers::Unit(state) => SliceParam::of_range(state.unit(), &self.range.range),
            SliceBuffers::MadeUp(shard) => vec![shard.slice_param()],
        }
    }

    /// Returns the range of the elements, relative to the rank's shard of the unit. It depends on the mesh and the ZeRO
    /// stage; [`params`](Self::params) has positions that do not.
    pub fn range_in_shard(&self) -> Range<usize> {
        self.range.in_shard.clone()
    }
}
