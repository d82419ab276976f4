//! The work of a training step at each position along `pp`.

use std::sync::Arc;

use crate::layout::AxisId;
use crate::mesh::MeshShape;
use crate::train::config::DeviceChoice;
use crate::train::plan::{MemoryPlan, Plan};
use crate::train::{LanguageModel, Result};
use meshwright_core::__internal::Pass;
use meshwright_sim::StepLog;

use super::calls::calls_of;
use super::kernels::{KernelRow, kernel_rows};
use super::peak::StepPeak;
use super::rows::{CollectiveRow, rows_of};

/// The work of a training step.
pub struct Explanation {
    pub mesh: MeshShape,
    /// The last rank at each position along `pp`, which has the largest shards.
    pub positions: Vec<ExplainedPosition>,
    /// FLOPs of the model in a step, as [MFU](crate::train::StepMetrics) counts them.
    pub model_flops: f64,
    /// The plan of the whole run.
    pub memory: MemoryPlan,
}

/// The work of a rank in a training step.
pub struct ExplainedPosition {
    pub rank: usize,
    pub log: Arc<StepLog>,
    pub collectives: Vec<CollectiveRow>,
    pub kernels: Vec<KernelRow>,
    pub peak: StepPeak,
}

impl Explanation {
    /// Explains a step of a run.
    ///
    /// # Errors
    /// Of the model or the optimizer, and a failure of the dry run.
    pub fn new<M: LanguageModel>(plan: &Plan) -> Result<Explanation> {
        let Plan { config, memory, .. } = plan;
        let mesh = config.mesh;
        let last = mesh.coordinates(mesh.world_size() - 1);
        let logs = plan.step_logs::<M>()?.into_iter().enumerate();
        let positions = logs.map(|(position, log)| ExplainedPosition {
            rank: mesh.rank_of(&last.with(AxisId::Pp, position)),
            collectives: rows_of(calls_of(&log)),
            kernels: kernel_rows(&log, config.micro_batches),
            peak: StepPeak::of(&log, config.device == DeviceChoice::Cuda),
            log,
        });
        let per_token = plan.flops.parameters + plan.flops.attention;
        let model_flops = per_token * (config.batch * config.seq) as f64;
        Ok(Explanation {
            mesh,
            positions: positions.collect(),
            model_flops,
            memory: memory.clone(),
        })
    }

    /// Returns the FLOPs of matmuls and attention on the rank that has most of them.
    pub fn flops_of_busiest_rank(&self) -> u64 {
        self.positions.iter().map(|position| position.log.flops(|_| true)).max().unwrap_or(0)
    }

    /// Returns the FLOPs of matmuls and attention on all ranks, in the passes that `counts` selects. Ranks at a
    /// position along `pp` count as if they were alike.
    pub fn flops_of_all_ranks(&self, counts: impl Fn(Pass) -> bool) -> f64 {
        let ranks_each = (self.mesh.world_size() / self.positions.len()) as f64;
        self.positions.iter().map(|position| position.log.flops(&counts) as f64 * ranks_each).sum()
    }

    /// Returns the recomputed FLOPs on all ranks.
    pub fn recomputed_flops(&self) -> f64 {
        self.flops_of_all_ranks(|pass| pass == Pass::Recomputation)
    }
}
