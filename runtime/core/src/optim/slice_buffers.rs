//! The buffers of a slice: of a unit, or of a made-up shard.

use std::ops::Range;
use std::rc::Rc;

use meshwright_backend::{StateRounding, View, ViewMut};

use super::made_up_shard::MadeUpShard;
use super::{OptimizerStep, UnitState};

/// Operands of the update of a slice, all of one length.
pub(super) struct SliceOperands<'v, const N: usize> {
    /// Parameters, f32.
    pub params: ViewMut<'v>,
    /// Their gradient, unscaled.
    pub gradient: View<'v>,
    /// States of the requested kinds.
    pub states: [ViewMut<'v>; N],
    /// Rounding of the states; empty if they are f32.
    pub rounding: &'v [StateRounding],
    /// A copy of the new parameters in the compute dtype, to be written.
    pub copy: Option<ViewMut<'v>>,
}

/// The buffers of a slice.
pub(super) enum SliceBuffers<'a> {
    Unit(&'a mut UnitState),
    /// The buffers of a made-up shard, to check a rule.
    MadeUp(&'a mut MadeUpShard),
}

impl SliceBuffers<'_> {
    /// Returns the buffers for a slice that ends before this one.
    pub(super) fn reborrow(&mut self) -> SliceBuffers<'_> {
        match self {
            SliceBuffers::Unit(state) => SliceBuffers::Unit(state),
            SliceBuffers::MadeUp(shard) => SliceBuffers::MadeUp(shard),
        }
    }

    /// Updates a range of the buffers, at `in_shard` in the shard, which has the states of `kinds`.
    pub(super) fn update_range<const N: usize>(
        self,
        step: &OptimizerStep<'_>,
        range: Range<usize>,
        in_shard: Range<usize>,
        kinds: [&str; N],
        kernel: impl FnOnce(SliceOperands<'_, N>),
    ) {
        match self {
            SliceBuffers::Unit(state) => {
                let unit = Rc::clone(state.unit());
                let rounding = if N > 0 { step.state_rounding(&unit, &range) } else { Vec::new() };
                let (states, rounding) = (state.state_views(kinds, &in_shard), rounding.as_slice());
                unit.update(range, |params, gradient, copy| {
                    kernel(SliceOperands { params, gradient, states, rounding, copy });
                });
            }
            SliceBuffers::MadeUp(shard) => shard.update(kinds, |params, gradient, states| {
                kernel(SliceOperands { params, gradient, states, rounding: &[], copy: None });
            }),
        }
    }
}
