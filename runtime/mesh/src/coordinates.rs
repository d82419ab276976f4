//! Coordinates of ranks on the mesh, and process groups along its axes.

use crate::{AxisId, AxisSet};

use super::MeshShape;

/// The position of a rank along each axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Coordinates {
    along: [usize; AxisId::ALL.len()],
}

impl Coordinates {
    /// Returns the position along `axis`, from 0 up to its degree.
    pub const fn along(&self, axis: AxisId) -> usize {
        self.along[axis as usize]
    }

    /// Returns these coordinates with another position along `axis`.
    pub const fn with(mut self, axis: AxisId, position: usize) -> Coordinates {
        self.along[axis as usize] = position;
        self
    }
}

/// Ranks are numbered in the [order](MeshShape::order) of the axes: by default with `tp` innermost (neighboring ranks)
/// and `pp` outermost. The order of the members of a group does not depend on it, so neither do the shards of a rank
/// with given coordinates.
impl MeshShape {
    /// Returns the coordinates of `rank`.
    ///
    /// # Panics
    /// If the mesh has no such rank, a bug of the caller.
    pub fn coordinates(&self, rank: usize) -> Coordinates {
        assert!(rank < self.world_size(), "rank {rank} is not on the mesh {self}");
        let mut rest = rank;
        let mut along = [0; AxisId::ALL.len()];
        for axis in self.order().innermost_first() {
            along[axis as usize] = rest % self.degree(axis);
            rest /= self.degree(axis);
        }
        Coordinates { along }
    }

    /// Returns the rank at `coordinates`.
    ///
    /// # Panics
    /// If the coordinates are outside the mesh, a bug of the caller.
    pub fn rank_of(&self, coordinates: &Coordinates) -> usize {
        self.order().outermost_first().fold(0, |rank, axis| {
            let (position, degree) = (coordinates.along(axis), self.degree(axis));
            assert!(position < degree, "{axis} = {position} is not on the mesh {self}");
            rank * degree + position
        })
    }

    /// Returns the process group of `rank` along `axes`: the ranks whose coordinates differ along `axes` only,
    /// including `rank`, ordered by coordinates; coordinates along the first axes of [`AxisId::ALL`] count most.
    pub fn group_of(&self, rank: usize, axes: AxisSet) -> Vec<usize> {
        let mut members = vec![self.coordinates(rank)];
        for axis in axes.iter() {
            let along = |c: Coordinates| (0..self.degree(axis)).map(move |p| c.with(axis, p));
            members = members.into_iter().flat_map(along).collect();
        }
        members.iter().map(|coordinates| self.rank_of(coordinates)).collect()
    }

    /// Returns the group rank of `rank`: its index in [`group_of`](Self::group_of).
    pub fn index_in_group(&self, rank: usize, axes: AxisSet) -> usize {
        let coordinates = self.coordinates(rank);
        axes.iter().fold(0, |idx, axis| idx * self.degree(axis) + coordinates.along(axis))
    }

    /// Returns all groups along `axes`, ordered by the rank of their first member. Each rank is in exactly one group.
    pub fn groups(&self, axes: AxisSet) -> Vec<Vec<usize>> {
        (0..self.world_size())
            .filter(|rank| self.index_in_group(*rank, axes) == 0)
            .map(|rank| self.group_of(rank, axes))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AxisOrder;

    fn axes(list: &[AxisId]) -> AxisSet {
        list.iter().fold(AxisSet::NONE, |set, axis| set.union(AxisSet::of(*axis)))
    }

    #[test]
    fn tensor_parallel_ranks_are_neighbors() {
        let shape: MeshShape = "dp=2,tp=3".parse().unwrap();
        assert_eq!(shape.groups(axes(&[AxisId::Tp])), [[0, 1, 2], [3, 4, 5]]);
        assert_eq!(shape.groups(axes(&[AxisId::Dp])), [[0, 3], [1, 4], [2, 5]]);
        assert_eq!(shape.groups(axes(&[AxisId::Dp, AxisId::Tp])), [[0, 1, 2, 3, 4, 5]]);
        assert_eq!(shape.groups(AxisSet::NONE).len(), 6);
        assert_eq!(shape.group_of(4, axes(&[AxisId::Dp])), [1, 4]);
        assert_eq!(shape.index_in_group(4, axes(&[AxisId::Dp])), 1);
        assert_eq!(shape.degree_of(AxisSet::DATA), 2);
    }

    #[test]
    fn the_order_of_axes_numbers_the_ranks() {
        let shape: MeshShape = "dp=2,tp=3".parse().unwrap();
        let other = shape.with_order("tp,dp".parse().unwrap()).unwrap();
        assert_eq!(other.groups(axes(&[AxisId::Dp])), [[0, 1], [2, 3], [4, 5]]);
        assert_eq!(other.groups(axes(&[AxisId::Tp])), [[0, 2, 4], [1, 3, 5]]);
        // Members in the order of coordinates along dp, then tp: the shards that they hold.
        assert_eq!(other.groups(axes(&[AxisId::Dp, AxisId::Tp])), [[0, 2, 4, 1, 3, 5]]);
        assert_eq!(other.coordinates(3), shape.coordinates(4));
        assert_eq!(shape.with_order(AxisOrder::DEFAULT), Ok(shape));
    }

    #[test]
    fn every_set_of_axes_partitions_the_mesh() {
        let shape: MeshShape = "pp=2,dp=3,fsdp=2,cp=2,tp=2".parse().unwrap();
        assert_partitions(&shape, true);
        assert_partitions(&shape.with_order("cp,tp,dp,pp,fsdp".parse().unwrap()).unwrap(), false);
    }

    fn assert_partitions(shape: &MeshShape, sorted: bool) {
        for bits in 0..1u32 << AxisId::ALL.len() {
            let set: Vec<_> =
                AxisId::ALL.into_iter().filter(|axis| bits >> *axis as u32 & 1 == 1).collect();
            let set = axes(&set);
            let mut seen = vec![0; shape.world_size()];
            for group in shape.groups(set) {
                assert_eq!(group.len(), shape.degree_of(set));
                assert!(!sorted || group.is_sorted());
                for (idx, rank) in group.iter().enumerate() {
                    seen[*rank] += 1;
                    assert_eq!(shape.index_in_group(*rank, set), idx);
                    assert_eq!(shape.group_of(*rank, set), group);
                    assert_eq!(shape.rank_of(&shape.coordinates(*rank)), *rank);
                }
            }
            assert!(seen.iter().all(|times| *times == 1));
        }
    }
}
