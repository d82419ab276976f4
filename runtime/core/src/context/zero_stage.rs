//! ZeRO stages: which state is sharded over ranks.

use crate::layout::AxisId;
use meshwright_mesh::MeshShape;

/// ZeRO stage: which state is sharded over the ranks of the `fsdp`, `ep` and `cp` axes instead of replicated on each
/// (Rajbhandari et al., "ZeRO", 2020), except over axes that split the parameter itself. The `dp` axis outside of them
/// always replicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum ZeroStage {
    /// Stage 0: nothing is sharded; gradients are all-reduced.
    #[default]
    Replicated,
    /// Stage 1: optimizer state; gradients are reduce-scattered once per step, new parameters all-gathered.
    Optimizer,
    /// Stage 2: gradients too; they are reduce-scattered once per micro-batch.
    Gradients,
    /// Stage 3: parameters too ("fully sharded"); a unit is all-gathered when it is used, and freed after.
    Parameters,
}

impl ZeroStage {
    /// Every stage, from 0.
    pub const ALL: [ZeroStage; 4] =
        [ZeroStage::Replicated, ZeroStage::Optimizer, ZeroStage::Gradients, ZeroStage::Parameters];

    /// Returns the stage that suits a mesh: 3 if it has `fsdp` ranks, whose purpose it is, but 1 if it has `pp` ranks
    /// as well, since stage 3 would gather the parameters again for every micro-batch; else 0.
    pub fn suited_to(mesh: &MeshShape) -> ZeroStage {
        match (mesh.degree(AxisId::Fsdp), mesh.degree(AxisId::Pp)) {
            (1, _) => ZeroStage::Replicated,
            (_, 1) => ZeroStage::Parameters,
            _ => ZeroStage::Optimizer,
        }
    }

    /// Returns the number of the stage, 0 to 3.
    pub const fn number(self) -> u8 {
        self as u8
    }
}

impl std::fmt::Display for ZeroStage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ZeRO-{}", self.number())
    }
}
