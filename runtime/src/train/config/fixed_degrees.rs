//! `--fix`: degrees of some axes that a search keeps.

use std::str::FromStr;

use crate::layout::AxisId;
use crate::mesh::{MeshError, MeshShape};

/// Degrees of some axes; `cp=1` fixes an axis, too. Its text form is `tp=8,cp=1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedDegrees(Vec<(AxisId, usize)>);

impl FixedDegrees {
    /// Returns the degree of an axis, if it is fixed.
    pub fn degree(&self, axis: AxisId) -> Option<usize> {
        self.0.iter().find(|(known, _)| *known == axis).map(|(_, degree)| *degree)
    }

    /// Returns the product of all degrees.
    pub fn ranks(&self) -> usize {
        self.0.iter().map(|(_, degree)| degree).product()
    }
}

impl FromStr for FixedDegrees {
    type Err = MeshError;

    fn from_str(text: &str) -> Result<FixedDegrees, MeshError> {
        let mesh: MeshShape = text.parse()?;
        let keys = text.split(',').filter_map(|entry| entry.split_once('='));
        let axes = keys
            .filter_map(|(key, _)| AxisId::ALL.into_iter().find(|axis| axis.name() == key.trim()));
        Ok(FixedDegrees(axes.map(|axis| (axis, mesh.degree(axis))).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn degrees_of_one_are_fixed() {
        let fixed: FixedDegrees = "tp=8, cp = 1".parse().unwrap();
        let of = |axis| fixed.degree(axis);
        assert_eq!((of(AxisId::Tp), of(AxisId::Cp), of(AxisId::Pp)), (Some(8), Some(1), None));
        assert_eq!(fixed.ranks(), 8);
        for wrong in ["tp=8,tp=4", "tp", "tq=2", "tp=0"] {
            wrong.parse::<FixedDegrees>().unwrap_err();
        }
    }
}
