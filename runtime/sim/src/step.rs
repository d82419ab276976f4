//! The simulation of a step, and its result.

use std::sync::Arc;

use meshwright_mesh::{AxisId, MeshShape};

use crate::cluster::Cluster;
use crate::error::SimError;
use crate::options::SimOptions;
use crate::record::StepLog;
use crate::replay::{PositionTime, SimSpan, replay};
use crate::time::{SoftwareFactors, Times};

/// Replays in which the fraction of time settles in which the ranks that share a machine compute.
const SHARING_ROUNDS: usize = 3;

/// A simulated step of training in its steady state.
#[derive(Debug, Clone)]
pub struct SimulatedStep {
    /// Seconds of the step.
    pub seconds: f64,
    /// The time of each position along `pp`.
    pub positions: Vec<PositionTime>,
    /// The spans of a trace, in no order; empty unless they are asked for.
    pub spans: Vec<SimSpan>,
}

/// Simulates a step on a cluster from the logs of the positions along `pp`, in their order. Ranks of the mesh fill the
/// cluster in their order, whole nodes first.
///
/// The step is replayed twice, and the second time is the result: its first operations wait for the end of the step
/// before. If the ranks share one machine and are more than its cores, those that wait leave their cores to the others:
/// all kernels take the mean of their times over the numbers of ranks that compute.
///
/// # Errors
/// - The mesh has another number of positions than there are logs, or more ranks than the cluster has GPUs.
/// - The GPU has no peak for a dtype of the step.
/// - A log is faulty: a message is not sent and received once each, a call is awaited but not issued, or positions wait
///   for each other forever. The error names position and event.
pub fn simulate(
    cluster: &Cluster,
    mesh: &MeshShape,
    logs: &[Arc<StepLog>],
    options: &SimOptions,
) -> Result<SimulatedStep, SimError> {
    let positions = mesh.degree(AxisId::Pp);
    if positions != logs.len() {
        return Err(SimError::Positions { logs: logs.len(), mesh: *mesh, positions });
    }
    let mut times = Times::new(cluster, mesh)?;
    let gpu = &cluster.gpu;
    let software = if gpu.is_shared() { SoftwareFactors::SHARED } else { options.software };
    let options = &SimOptions { software, ..options.clone() };
    let mut replayed = replay(logs, &mut times, options)?;
    if gpu.is_shared() && mesh.world_size() > gpu.units {
        for _ in 0..SHARING_ROUNDS {
            times.set_busy_fraction(replayed.busy_fraction());
            replayed = replay(logs, &mut times, options)?;
        }
    }
    let jitter = software.jitter(times.nodes());
    let mut step = SimulatedStep {
        seconds: replayed.seconds * jitter,
        positions: replayed.positions,
        spans: replayed.spans,
    };
    step.positions.iter_mut().for_each(|position| position.scale(jitter));
    for span in &mut step.spans {
        span.start *= jitter;
        span.duration *= jitter;
    }
    Ok(step)
}

impl SimulatedStep {
    /// Returns the means over all positions.
    pub fn mean_position(&self) -> PositionTime {
        let mut mean = PositionTime::default();
        self.positions.iter().for_each(|position| mean.add(position));
        mean.scale(1.0 / self.positions.len().max(1) as f64);
        mean
    }

    /// Returns the fraction of the time of all positions in which they wait for other positions, or are done.
    pub fn bubble(&self) -> f64 {
        let PositionTime { waiting, end_idle, .. } = self.mean_position();
        (waiting + end_idle) / self.seconds
    }
}
