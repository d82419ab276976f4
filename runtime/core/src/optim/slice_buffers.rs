//! The buffers of a slice: of a unit, or of a made-up shard.

use std::ops::Range;
use std::rc::Rc;

use meshwright_backend::{View, ViewMut};

use super::UnitState;
use super::made_up_shard::MadeUpShard;

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
        range: Range<usize>,
        in_shard: Range<usize>,
        kinds: [&str; N],
        kernel: impl FnOnce(ViewMut<'_>, View<'_>, [ViewMut<'_>; N], Option<ViewMut<'_>>),
    ) {
        match self {
            SliceBuffers::Unit(state) => {
                let unit = Rc::clone(state.unit());
                let states = state.state_views(kinds, &in_shard);
                unit.update(range, |params, gradient, copy| kernel(params, gradient, states, copy));
            }
            SliceBuffers::MadeUp(shard) => shard.update(kinds, kernel),
        }
    }
}
