//! The work of a training step at each position along `pp`.

use std::sync::Arc;

use crate::layout::AxisId;
use crate::mesh::MeshShape;
use crate::train::config::{DeviceChoice, LocalSgdConfig};
use crate::train::plan::{MemoryPlan, Plan};
use crate::train::{Result, Task};
use meshwright_core::__internal::Pass;
use meshwright_sim::{EventKind, StepEvent, StepLog};

use super::calls::calls_of;
use super::kernels::{KernelRow, kernel_rows};
use super::memory_over_time::MemoryOverTime;
use super::peak::StepPeak;
use super::rows::{CollectiveRow, rows_of};

/// The work of a training step.
pub struct Explanation {
    pub mesh: MeshShape,
    /// The last rank at each position along `pp`, which has the largest shards.
    pub positions: Vec<ExplainedPosition>,
    /// `--local-steps`: the explained step synchronizes all fragments of the replicas; a run does it in several steps.
    pub local_sgd: Option<LocalSgdConfig>,
    /// FLOPs of the model in a step, as [MFU](crate::train::StepMetrics) counts them.
    pub model_flops: f64,
    /// The plan of the whole run.
    pub memory: MemoryPlan,
    /// Memory at the position with the highest peak, by the number of kernels that are launched before.
    pub memory_over_time: MemoryOverTime,
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
    pub fn new<T: Task>(plan: &Plan) -> Result<Explanation> {
        let Plan { config, memory, .. } = plan;
        let mesh = config.mesh;
        let last = mesh.coordinates(mesh.world_size() - 1);
        let logs = plan.step_logs::<T>()?.into_iter().enumerate();
        let is_device = config.device == DeviceChoice::Cuda;
        let positions = logs.map(|(position, log)| ExplainedPosition {
            rank: mesh.rank_of(&last.with(AxisId::Pp, position)),
            collectives: rows_of(calls_of(&log)),
            kernels: kernel_rows(&log, config.micro_batches),
            peak: StepPeak::of(&log, is_device),
            log,
        });
        let positions: Vec<ExplainedPosition> = positions.collect();
        let per_token = plan.flops.parameters + plan.flops.attention;
        let model_flops = per_token * (config.batch * config.seq) as f64;
        Ok(Explanation {
            mesh,
            memory_over_time: over_kernels(&positions, is_device),
            positions,
            local_sgd: config.local_sgd,
            model_flops,
            memory: memory.clone(),
        })
    }

    /// Returns the position with the highest peak of memory.
    pub fn fullest(&self) -> &ExplainedPosition {
        &self.positions[self.memory_over_time.position]
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

/// Returns the memory at the position with the highest peak. The time is the number of kernels.
fn over_kernels(positions: &[ExplainedPosition], is_device: bool) -> MemoryOverTime {
    let peaks = positions.iter().map(|position| position.peak.bytes).enumerate();
    let fullest = peaks.rev().max_by_key(|(_, bytes)| *bytes).map_or(0, |(position, _)| position);
    let log = &positions[fullest].log;
    let is_kernel = |event: &StepEvent| matches!(event.kind, EventKind::Kernel(_));
    let end = log.events.iter().filter(is_kernel).count() as f64;
    let mut kernels = 0.0;
    MemoryOverTime::of(log, fullest, is_device, end, |_, event| {
        kernels += f64::from(u8::from(is_kernel(event)));
        kernels
    })
}
