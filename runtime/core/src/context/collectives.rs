//! Process groups of a rank, and its blocking reductions.

use std::sync::Arc;

use crate::layout::{AxisId, AxisSet};
use meshwright_backend::ViewMut;
use meshwright_comm::{Communicator, ReduceOp, Site};

use super::failure::fail;
use super::rank::Rank;

impl Rank {
    /// Returns the degree of one mesh axis.
    pub fn degree(&self, axis: AxisId) -> usize {
        self.comms().shape().degree(axis)
    }

    /// Returns the number of ranks that differ from this one only along `axes`, itself included.
    pub fn degree_of(&self, axes: AxisSet) -> usize {
        self.comms().shape().degree_of(axes)
    }

    /// Returns the position of this rank among the ranks that differ from it only along `axes`.
    pub fn position(&self, axes: AxisSet) -> usize {
        self.comms().shape().index_in_group(self.index(), axes)
    }

    /// Returns the process group of the ranks that differ from this one only along `axes`; axes of degree 1 make no
    /// difference.
    pub fn group(&self, axes: AxisSet) -> Arc<Communicator> {
        self.note_use_of(axes);
        self.process_group(axes)
    }

    /// Returns the same as [`group`](Self::group), for collectives that the library issues itself.
    ///
    /// # Panics
    /// If a pipeline stage communicates over `pp`: the other stages are not computed at the same time.
    #[track_caller]
    #[doc(hidden)]
    pub fn process_group(&self, axes: AxisSet) -> Arc<Communicator> {
        let is_over_stages = axes.contains(AxisId::Pp) && self.degree(AxisId::Pp) > 1;
        assert!(
            !is_over_stages || !self.is_in_stage(),
            "an operation inside of a pipeline stage communicates over `pp`, whose ranks compute other stages \
             meanwhile: split tensors of stages over `tp` or `cp`, and let the schedule pass tensors from stage to \
             stage"
        );
        let single = axes.iter().filter(|axis| self.degree(*axis) == 1);
        self.comms().group(single.fold(axes, |axes, axis| axes.difference(AxisSet::of(axis))))
    }

    /// Reduces `data` over the ranks along `axes`; does nothing if there is only this one.
    #[track_caller]
    pub(crate) fn all_reduce(&self, axes: AxisSet, site: &Site, op: ReduceOp, data: ViewMut<'_>) {
        let group = self.process_group(axes);
        if group.size() > 1 {
            group.all_reduce(site, op, data).unwrap_or_else(|error| fail(error));
        }
    }

    /// Sums `values` over the ranks along `axes` in double precision, in the order of ranks.
    #[track_caller]
    #[doc(hidden)]
    pub fn all_reduce_f64(&self, axes: AxisSet, site: &Site, values: &mut [f64]) {
        let group = self.process_group(axes);
        group.all_reduce_f64(site, values).unwrap_or_else(|error| fail(error));
    }
}
