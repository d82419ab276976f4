//! Mesh axes and sets of them.

/// An axis of the mesh, ordered from outermost to innermost.
///
/// An *axis* belongs to the mesh; a *dim* belongs to a tensor. The two words are never mixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum AxisId {
    /// Pipeline parallelism.
    Pp,
    /// Data parallelism with replicated parameters.
    Dp,
    /// Data parallelism with sharded parameters.
    Fsdp,
    /// Expert parallelism.
    Ep,
    /// Context parallelism: splits the sequence outside tensor-parallel regions.
    Cp,
    /// Tensor parallelism.
    Tp,
}

impl AxisId {
    /// All axes, outermost first.
    pub const ALL: [AxisId; 6] =
        [AxisId::Pp, AxisId::Dp, AxisId::Fsdp, AxisId::Ep, AxisId::Cp, AxisId::Tp];

    /// The name used by `--mesh` and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            AxisId::Pp => "pp",
            AxisId::Dp => "dp",
            AxisId::Fsdp => "fsdp",
            AxisId::Ep => "ep",
            AxisId::Cp => "cp",
            AxisId::Tp => "tp",
        }
    }
}

impl std::fmt::Display for AxisId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of mesh axes, usable in constants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct AxisSet(u8);

impl AxisSet {
    /// The empty set.
    pub const NONE: AxisSet = AxisSet(0);
    /// The set of all axes.
    pub const ALL: AxisSet = AxisSet((1 << AxisId::ALL.len()) - 1);
    /// The axes over which ranks read different samples: `dp`, `fsdp` and `ep` together.
    pub const DATA: AxisSet =
        AxisSet::of(AxisId::Dp).union(AxisSet::of(AxisId::Fsdp)).union(AxisSet::of(AxisId::Ep));
    /// The axes over which ranks read different tokens: the data axes, and `cp`. The gradient of a parameter is summed
    /// over the axes of this set that do not split the parameter.
    pub const TOKENS: AxisSet = AxisSet::DATA.union(AxisSet::of(AxisId::Cp));
    /// The axes over which ZeRO shards state: `fsdp`, `ep` and `cp`, without those that split the parameter. Along `dp`
    /// it is replicated.
    pub const ZERO: AxisSet = AxisSet::TOKENS.difference(AxisSet::of(AxisId::Dp));

    /// Creates the set of one axis.
    pub const fn of(axis: AxisId) -> AxisSet {
        AxisSet(1 << axis as u8)
    }

    /// Returns a unique number below 256 for each set.
    #[doc(hidden)]
    pub const fn number(self) -> usize {
        self.0 as usize
    }

    /// Returns the set with this [number](Self::number).
    #[doc(hidden)]
    pub const fn from_number(number: usize) -> AxisSet {
        AxisSet(number as u8)
    }

    /// Returns the union of both sets.
    pub const fn union(self, other: AxisSet) -> AxisSet {
        AxisSet(self.0 | other.0)
    }

    /// Returns the union of two disjoint sets.
    ///
    /// # Panics
    /// If an axis is in both sets, which is a compile error in a constant.
    pub const fn disjoint_union(self, other: AxisSet) -> AxisSet {
        assert!(
            self.intersection(other).is_empty(),
            "one mesh axis cannot distribute two dims of a tensor, or one dim twice: its ranks would hold the \
             diagonal blocks only; gather one of the dims first, or split it over another axis"
        );
        self.union(other)
    }

    /// Returns the intersection of both sets.
    pub const fn intersection(self, other: AxisSet) -> AxisSet {
        AxisSet(self.0 & other.0)
    }

    /// Returns the axes of `self` that are not in `other`.
    pub const fn difference(self, other: AxisSet) -> AxisSet {
        AxisSet(self.0 & !other.0)
    }

    /// Returns true if `axis` is in the set.
    pub const fn contains(self, axis: AxisId) -> bool {
        self.0 & (1 << axis as u8) != 0
    }

    /// Returns true if the set has no axis.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Iterates over the axes of the set, outermost first.
    pub fn iter(self) -> impl Iterator<Item = AxisId> {
        AxisId::ALL.into_iter().filter(move |axis| self.contains(*axis))
    }
}

impl std::fmt::Display for AxisSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.iter().map(AxisId::name).collect();
        f.write_str(&names.join(" x "))
    }
}
