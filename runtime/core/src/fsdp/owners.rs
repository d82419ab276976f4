//! Pipeline parallelism: owning stages of an FSDP unit.

use std::collections::BTreeSet;

/// Owning stages of an FSDP unit, which use its parameters, and the ranks that compute them. If parameters are tied
/// across stages, there are several; each owner holds the whole unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitOwners {
    stages: Vec<usize>,
    ranks: Vec<usize>,
}

impl UnitOwners {
    /// Creates the owners of a unit that `stages` use, where `placement` is the rank of each stage.
    ///
    /// # Panics
    /// If no stage uses the unit, or the placement lacks one.
    #[doc(hidden)]
    pub fn new(stages: &BTreeSet<usize>, placement: &[usize]) -> UnitOwners {
        assert!(!stages.is_empty(), "a unit is owned by at least one stage");
        let mut ranks = Vec::new();
        for rank in stages.iter().map(|stage| placement[*stage]) {
            if !ranks.contains(&rank) {
                ranks.push(rank);
            }
        }
        UnitOwners { stages: stages.iter().copied().collect(), ranks }
    }

    /// Returns the owning stages, in ascending order.
    pub fn stages(&self) -> &[usize] {
        &self.stages
    }

    /// Returns the positions of the owning ranks along `pp`, in the order of their first owning stages.
    pub fn ranks(&self) -> &[usize] {
        &self.ranks
    }
}

impl std::fmt::Display for UnitOwners {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let list = |numbers: &[usize]| {
            let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
            numbers.join(", ")
        };
        let plural = if self.stages.len() == 1 { "" } else { "s" };
        write!(f, "stage{plural} {} at pp = {}", list(&self.stages), list(&self.ranks))
    }
}
