//! The shape of the mesh: the degree of each axis.

use crate::{AxisId, AxisSet};

use super::{AxisOrder, MeshError};

/// The degree (number of ranks) of each axis, 1 for axes that are not named, and the order of the axes in rank numbers.
///
/// Its text form is the `--mesh` grammar: `dp=2,tp=2`, axes in any order; `1` for a single rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MeshShape {
    degrees: [usize; AxisId::ALL.len()],
    order: AxisOrder,
}

impl MeshShape {
    /// The mesh of one rank.
    pub const SINGLE: MeshShape =
        MeshShape { degrees: [1; AxisId::ALL.len()], order: AxisOrder::DEFAULT };

    /// Creates a mesh with these degrees.
    ///
    /// # Errors
    /// On a degree of zero, a duplicate axis, or a number of ranks that overflows `usize`.
    pub fn new(degrees: impl IntoIterator<Item = (AxisId, usize)>) -> Result<MeshShape, MeshError> {
        let mut shape = MeshShape::SINGLE;
        let mut given = AxisSet::NONE;
        for (axis, degree) in degrees {
            if degree == 0 {
                return Err(MeshError::Zero { axis });
            }
            if given.contains(axis) {
                return Err(MeshError::Duplicate { axis });
            }
            given = given.union(AxisSet::of(axis));
            shape.degrees[axis as usize] = degree;
        }
        let product = shape.degrees.iter().try_fold(1usize, |ranks, d| ranks.checked_mul(*d));
        product.map(|_| shape).ok_or_else(|| MeshError::TooLarge { mesh: shape.to_string() })
    }

    /// Returns this mesh with other rank numbers: neighboring numbers differ along the innermost axis of `order`.
    ///
    /// # Errors
    /// On an axis with more than one rank that `order` does not name.
    pub fn with_order(self, order: AxisOrder) -> Result<MeshShape, MeshError> {
        match AxisId::ALL.into_iter().find(|axis| self.degree(*axis) > 1 && !order.names(*axis)) {
            Some(axis) => Err(MeshError::NotOrdered { axis, degree: self.degree(axis) }),
            None => Ok(MeshShape { order, ..self }),
        }
    }

    /// Returns the mesh of `axes` alone: the others have one rank.
    pub fn with_axes(self, axes: AxisSet) -> MeshShape {
        let mut shape = self;
        for axis in AxisId::ALL.into_iter().filter(|axis| !axes.contains(*axis)) {
            shape.degrees[axis as usize] = 1;
        }
        shape
    }

    /// Returns the order of the axes in rank numbers.
    pub const fn order(&self) -> &AxisOrder {
        &self.order
    }

    /// Returns the number of ranks, which is the product of all degrees.
    pub fn world_size(&self) -> usize {
        self.degrees.iter().product()
    }

    /// Returns the number of ranks along `axis`.
    pub const fn degree(&self, axis: AxisId) -> usize {
        self.degrees[axis as usize]
    }

    /// Returns the size of a process group along `axes`, which is the product of their degrees (1 for no axis).
    pub fn degree_of(&self, axes: AxisSet) -> usize {
        axes.iter().map(|axis| self.degree(axis)).product()
    }

    /// Returns the axes among `axes` that have several ranks.
    pub fn axes_in_use(&self, axes: AxisSet) -> AxisSet {
        let in_use = axes.iter().filter(|axis| self.degree(*axis) > 1);
        in_use.fold(AxisSet::NONE, |all, axis| all.union(AxisSet::of(axis)))
    }
}

impl Default for MeshShape {
    fn default() -> Self {
        MeshShape::SINGLE
    }
}

/// Prints the axes with more than one rank, outermost first, or `1` for a single rank, in the `--mesh` grammar.
impl std::fmt::Display for MeshShape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let entries: Vec<_> = AxisId::ALL
            .into_iter()
            .filter(|axis| self.degree(*axis) > 1)
            .map(|axis| format!("{axis}={}", self.degree(axis)))
            .collect();
        if entries.is_empty() { f.write_str("1") } else { f.write_str(&entries.join(",")) }
    }
}
