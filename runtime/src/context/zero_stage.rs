//! How much of a unit's state is sharded.

/// What the ranks of the `fsdp` axis share out between them instead of each holding all of it (Rajbhandari et al.,
/// "ZeRO", 2020). The `dp` axis outside of it always replicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum ZeroLevel {
    /// 0: nothing; gradients are all-reduced.
    #[default]
    Replicated,
    /// 1: the optimiser's state; gradients are reduce-scattered once per step, new parameters all-gathered.
    Optimizer,
    /// 2: gradients, too; they are reduce-scattered once per micro-batch.
    Gradients,
    /// 3: parameters, too ("fully sharded"); a unit is all-gathered when it is used, and freed after.
    Parameters,
}

impl ZeroLevel {
    /// Every level, from 0.
    pub const ALL: [ZeroLevel; 4] =
        [ZeroLevel::Replicated, ZeroLevel::Optimizer, ZeroLevel::Gradients, ZeroLevel::Parameters];

    /// The level's number, 0 to 3.
    pub const fn number(self) -> u8 {
        self as u8
    }
}

impl std::fmt::Display for ZeroLevel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ZeRO-{}", self.number())
    }
}
