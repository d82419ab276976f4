//! Communicators of MPI for the process groups of a mesh.

use std::collections::BTreeMap;

use meshwright_mesh::{AxisId, AxisSet, MeshShape};

use crate::group_member::axes_of_several;

use super::library::{MpiComm, MpiLibrary, MpiResult};

/// The kinds of calls of a group, which do not wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MpiCommKind {
    /// Blocking collectives.
    Blocking,
    /// Asynchronous collectives.
    Asynchronous,
    /// Messages of both forms.
    Message,
}

/// The communicators of all process groups of a rank.
pub struct MpiGroups {
    /// A communicator for each kind of calls.
    pub comms: Vec<[MpiComm; 3]>,
    /// All ranks, for the end of the run.
    pub all: MpiComm,
}

/// Indices of the communicators in [`MpiGroups`], by axes with more than one rank.
pub type GroupIndices = BTreeMap<AxisSet, usize>;

impl MpiGroups {
    /// Creates the communicators of every set of axes, in the same order on all ranks. All of them call it.
    ///
    /// Not at the first use, because ranks use them first at different times, and creating one waits for its members:
    /// two ranks that create different ones would wait for each other's calls in progress.
    pub fn create(
        library: &MpiLibrary,
        shape: &MeshShape,
        rank: usize,
    ) -> MpiResult<(MpiGroups, GroupIndices)> {
        let world = shape.world_size();
        // The library may number the processes otherwise than the launcher.
        let all = library.split(library.world(), 0, rank)?;
        if (library.size(all)?, library.rank(all)?) != (world, rank) {
            return Err(format!("MPI gives rank {rank} another number, {}", library.rank(all)?));
        }
        let several: Vec<AxisId> = axes_of_several(shape, AxisSet::ALL).iter().collect();
        let (mut comms, mut indices) = (Vec::new(), GroupIndices::new());
        // Subsets of the axes in the order of their numbers. The first is that of this rank alone, for messages to it.
        for subset in 0..1usize << several.len() {
            let chosen = several.iter().enumerate().filter(|(bit, _)| subset >> bit & 1 == 1);
            let axes = chosen.fold(AxisSet::NONE, |set, (_, axis)| set.union(AxisSet::of(*axis)));
            let (color, key) = (shape.group_of(rank, axes)[0], shape.index_in_group(rank, axes));
            let first = library.split(all, color, key)?;
            let others = (library.duplicate(first)?, library.duplicate(first)?);
            indices.insert(axes, comms.len());
            comms.push([first, others.0, others.1]);
        }
        Ok((MpiGroups { comms, all }, indices))
    }

    /// Returns the communicator of a group for a kind of calls.
    pub fn comm(&self, group: usize, kind: MpiCommKind) -> MpiComm {
        self.comms[group][kind as usize]
    }
}
