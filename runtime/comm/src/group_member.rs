//! One rank's membership in a process group, shared by its communicator and its engine.

use std::sync::Arc;

use meshwright_mesh::AxisSet;
#[cfg(any(feature = "cuda", feature = "mpi"))]
use meshwright_mesh::{AxisId, MeshShape};

use super::accounting::Accounting;
use super::call::Peer;

/// One rank's membership in a process group.
pub struct GroupMember {
    axes: AxisSet,
    world_ranks: Box<[usize]>,
    group_rank: usize,
    pub(super) accounting: Arc<Accounting>,
}

impl GroupMember {
    /// Creates the membership of member `group_rank` among `world_ranks`, which differ along `axes`.
    pub(super) fn new(
        axes: AxisSet,
        world_ranks: Vec<usize>,
        group_rank: usize,
        accounting: Accounting,
    ) -> GroupMember {
        let (world_ranks, accounting) = (world_ranks.into(), Arc::new(accounting));
        GroupMember { axes, world_ranks, group_rank, accounting }
    }

    /// The mesh axes along which the members differ.
    pub fn axes(&self) -> AxisSet {
        self.axes
    }

    /// World ranks of the members, by group rank.
    pub fn world_ranks(&self) -> &[usize] {
        &self.world_ranks
    }

    /// Number of members.
    pub fn size(&self) -> usize {
        self.world_ranks.len()
    }

    /// Group rank of this rank.
    pub fn group_rank(&self) -> usize {
        self.group_rank
    }

    /// World rank of this rank.
    pub fn world_rank(&self) -> usize {
        self.world_ranks[self.group_rank]
    }

    /// Returns the member with `group_rank`. The argument checks refuse one that does not exist.
    pub(super) fn peer(&self, group_rank: usize) -> Peer {
        let world_rank = self.world_ranks.get(group_rank).copied().unwrap_or(group_rank);
        Peer { group_rank, world_rank }
    }
}

/// Returns the axes among `axes` that have more than one rank.
#[cfg(any(feature = "cuda", feature = "mpi"))]
pub(super) fn axes_of_several(shape: &MeshShape, axes: AxisSet) -> AxisSet {
    let has_several = |axis: &AxisId| shape.degree_of(AxisSet::of(*axis)) > 1;
    axes.iter().filter(has_several).fold(AxisSet::NONE, |all, axis| all.union(AxisSet::of(axis)))
}
