//! The degree of every axis.

use crate::layout::{AxisId, AxisSet};

use super::MeshError;

/// How many ranks lie along each axis; an axis that was not named has degree 1.
///
/// Its text form is the `--mesh` grammar: `dp=2,tp=2`, keys in any order, `1` for no axis at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MeshShape {
    degrees: [usize; AxisId::ALL.len()],
}

impl MeshShape {
    /// The mesh of one rank.
    pub const SINGLE: MeshShape = MeshShape { degrees: [1; AxisId::ALL.len()] };

    /// A mesh with these degrees.
    ///
    /// # Errors
    /// A zero degree, an axis given twice, or more ranks than a `usize` counts.
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
            given = given.or(AxisSet::of(axis));
            shape.degrees[axis as usize] = degree;
        }
        let product = shape.degrees.iter().try_fold(1usize, |ranks, d| ranks.checked_mul(*d));
        product.map(|_| shape).ok_or_else(|| MeshError::TooLarge { mesh: shape.to_string() })
    }

    /// Number of ranks: the product of all degrees.
    pub fn world_size(&self) -> usize {
        self.degrees.iter().product()
    }

    /// Number of ranks along `axis`.
    pub const fn degree(&self, axis: AxisId) -> usize {
        self.degrees[axis as usize]
    }

    /// Number of ranks in a group over `axes`: the product of their degrees, 1 for no axis.
    pub fn degree_of(&self, axes: AxisSet) -> usize {
        axes.iter().map(|axis| self.degree(axis)).product()
    }
}

impl Default for MeshShape {
    fn default() -> Self {
        MeshShape::SINGLE
    }
}

/// Names the axes with more than one rank, outermost first; `1` for a mesh of one rank. Parses back.
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
