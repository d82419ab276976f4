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
        self.degree_of(AxisSet::of(axis))
    }

    /// Returns the number of ranks that differ from this one only along `axes`, itself included.
    pub fn degree_of(&self, axes: AxisSet) -> usize {
        self.comms().shape().degree_of(axes.difference(self.local_axes()))
    }

    /// Returns the position of this rank among the ranks that differ from it only along `axes`.
    pub fn position(&self, axes: AxisSet) -> usize {
        self.position_of(self.index(), axes)
    }

    /// Returns the position of world rank `world` among the ranks that differ from it only along `axes`.
    pub(crate) fn position_of(&self, world: usize, axes: AxisSet) -> usize {
        self.comms().shape().index_in_group(world, axes.difference(self.local_axes()))
    }

    /// Returns the number of replicas that train apart from each other: 1 unless
    /// [`Settings::local_replicas`](super::Settings::local_replicas) is set.
    #[doc(hidden)]
    pub fn replicas(&self) -> usize {
        self.comms().shape().degree_of(self.local_axes())
    }

    /// Returns the index of the replica of this rank, below [`replicas`](Self::replicas).
    #[doc(hidden)]
    pub fn replica(&self) -> usize {
        self.comms().shape().index_in_group(self.index(), self.local_axes())
    }

    /// Returns the process group of the ranks that hold the same part of the model in other replicas.
    pub(crate) fn replica_group(&self) -> Arc<Communicator> {
        self.group_along(self.local_axes())
    }

    /// Returns the mean over the replicas of `number`, which is the same on all ranks of a replica. Every rank calls
    /// it. The exchange does not count as communication of the step.
    #[doc(hidden)]
    pub fn mean_over_replicas(&self, site: &Site, number: f64) -> f64 {
        let replicas = self.replicas();
        if replicas == 1 {
            return number;
        }
        let mut sum = [if self.position(AxisSet::ALL) == 0 { number } else { 0.0 }];
        let world = self.comms().uncounted_world();
        world.all_reduce_f64(site, &mut sum).unwrap_or_else(|error| fail(error));
        sum[0] / replicas as f64
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
        self.group_along(axes.difference(self.local_axes()))
    }

    /// Returns the process group along `axes`, also of replicas that train apart.
    fn group_along(&self, axes: AxisSet) -> Arc<Communicator> {
        let single = axes.iter().filter(|axis| self.comms().shape().degree(*axis) == 1);
        self.comms().group(single.fold(axes, |axes, axis| axes.difference(AxisSet::of(axis))))
    }

    /// Sums `values` over all ranks in double precision, in the order of ranks, also over those of replicas that train
    /// apart: for reports.
    #[doc(hidden)]
    pub fn sum_over_ranks(&self, site: &Site, values: &mut [f64]) {
        let group = self.group_along(AxisSet::ALL);
        group.all_reduce_f64(site, values).unwrap_or_else(|error| fail(error));
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
