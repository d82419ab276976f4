//! Dims at run time.

use std::any::TypeId;

use super::AxisSet;

/// The run-time description of a dim.
#[derive(Debug, Clone, Copy)]
pub struct DimInfo {
    /// The declared name.
    pub name: &'static str,
    /// Identity of the declared dim, independent of its name.
    pub key: fn() -> TypeId,
    /// The axes that split it.
    pub split: AxisSet,
    /// The axes that distribute it by declaration.
    pub home: AxisSet,
    /// True if it is `Routed`: its elements follow from a routing, not from a size.
    pub is_routed: bool,
}

impl DimInfo {
    /// Returns the axes over which ranks hold different shards of the dim.
    pub const fn axes(&self) -> AxisSet {
        self.home.union(self.split)
    }

    /// Returns true if both are the same declared dim, split alike.
    pub fn is_same_dim(&self, other: &DimInfo) -> bool {
        (self.key)() == (other.key)() && self.split == other.split
    }
}

impl std::fmt::Display for DimInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.split.is_empty() {
            f.write_str(self.name)
        } else {
            write!(f, "Split<{}, {}>", self.name, self.split)
        }
    }
}
