//! Process groups on the levels of a cluster.

use meshwright_mesh::{AxisId, AxisSet, MeshShape};

use crate::cluster::Level;

/// A level over which a process group communicates.
#[derive(Debug, Clone, Copy)]
pub struct GroupLevel<'a> {
    /// The level.
    pub level: &'a Level,
    /// Members in a group of the level inside.
    pub inside: f64,
    /// Groups of the level inside that have members in one group of this level; at least 2.
    pub groups: f64,
}

impl GroupLevel<'_> {
    /// Returns the bytes per second that each rank sends over this level.
    pub fn bandwidth(&self) -> f64 {
        self.level.collective_bandwidth.value
    }

    /// Returns the seconds of a collective of no bytes over this level.
    pub fn latency(&self) -> f64 {
        let doublings = self.groups.log2() - 1.0;
        self.level.latency.value + doublings * self.level.latency_per_doubling.value
    }
}

/// Returns the levels over which the process groups along `axes` communicate, the innermost first; none for one rank.
///
/// The outermost level holds the rest of a group.
pub fn group_levels<'a>(
    levels: &'a [Level],
    mesh: &MeshShape,
    axes: AxisSet,
) -> Vec<GroupLevel<'a>> {
    let mut inside = 1;
    let mut found = Vec::new();
    for (idx, level) in levels.iter().enumerate() {
        let is_outermost = idx + 1 == levels.len();
        let members = if is_outermost {
            mesh.degree_of(axes)
        } else {
            members_within(level.size, mesh, axes)
        };
        if members > inside {
            let groups = members as f64 / inside as f64;
            found.push(GroupLevel { level, inside: inside as f64, groups });
            inside = members;
        }
    }
    found
}

/// Returns the bytes per second of a message over the level `idx` between two positions along `pp`, all of whose ranks
/// send at a time.
///
/// A network above another one may be oversubscribed: its bandwidth is that of each GPU if all of them use it. Ranks of
/// other positions do not use it, and leave their part to the senders.
pub fn message_bandwidth(levels: &[Level], idx: usize, mesh: &MeshShape) -> f64 {
    let own = levels[idx].message_bandwidth.value;
    // Within the innermost network, each GPU has a port of its own.
    let Some(inside) = idx.checked_sub(1).filter(|inside| *inside > 0) else { return own };
    let position = AxisSet::ALL.difference(AxisSet::of(AxisId::Pp));
    let senders = members_within(levels[inside].size, mesh, position).max(1);
    let share = levels[inside].size as f64 / senders as f64;
    (own * share).min(levels[inside].message_bandwidth.value)
}

/// Returns the index of the innermost level whose groups hold both positions along `pp` of a pipeline; `None` without
/// levels.
pub fn level_between(levels: &[Level], mesh: &MeshShape, positions: [usize; 2]) -> Option<usize> {
    // The first and the last pipeline: if nodes do not divide the mesh, one of them leaves its group.
    let corners = [0, mesh.world_size() - 1];
    let is_inside = |level: &&Level| {
        corners.iter().all(|corner| {
            let coordinates = mesh.coordinates(*corner);
            let group = |position| {
                mesh.rank_of(&coordinates.with(AxisId::Pp, position)) / level.size.max(1)
            };
            group(positions[0]) == group(positions[1])
        })
    };
    levels.iter().position(|level| is_inside(&level)).or(levels.len().checked_sub(1))
}

/// Returns the members of a process group along `axes` that any block of `size` neighboring ranks holds of it. If the
/// degrees do not divide the block, some blocks hold more.
fn members_within(size: usize, mesh: &MeshShape, axes: AxisSet) -> usize {
    let (mut room, mut members) = (size, 1);
    for axis in mesh.order().innermost_first() {
        let degree = mesh.degree(axis);
        let shared = greatest_common_divisor(room, degree);
        if axes.contains(axis) {
            members *= shared;
        }
        if shared < degree {
            break;
        }
        room /= degree;
    }
    members
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
