//! The simulation of a step, and its result.

use std::sync::Arc;

use meshwright_mesh::{AxisId, AxisSet, MeshShape};

use crate::cluster::Cluster;
use crate::replay::{Computation, Span, replay};
use crate::time::{SoftwareFactors, Times};
use crate::{SimError, StepLog};

/// Settings of a simulation.
#[derive(Debug, Clone, Default)]
pub struct SimOptions {
    /// Set if steps are launched as CUDA graphs: launches take less time, but collectives of different process groups
    /// do not overlap each other.
    pub cuda_graphs: bool,
    /// Set to get the [spans](SimulatedStep::spans) of a trace.
    pub spans: bool,
    /// Factors of software.
    pub software: SoftwareFactors,
}

/// A simulated step of training in its steady state.
#[derive(Debug, Clone)]
pub struct SimulatedStep {
    /// Seconds of the step.
    pub seconds: f64,
    /// The time of each position along `pp`.
    pub positions: Vec<PositionTime>,
    /// The spans of a trace, in no order; empty unless they are asked for.
    pub spans: Vec<Span>,
}

/// Seconds of the compute stream of a position along `pp`, by their use. The sum is the time of the step, if its steps
/// are alike.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PositionTime {
    /// Kernels by [`Computation`], slowed by collectives beside them.
    pub computation: [f64; Computation::ALL.len()],
    /// Waits for collectives over each set of axes: exposed communication.
    pub exposed: Vec<(AxisSet, f64)>,
    /// Waits for other positions: for messages, and for the start of collectives over `pp`. It is the pipeline bubble.
    pub waiting: f64,
    /// Waits for copies between host and device.
    pub transfers: f64,
    /// Waits for launches by the host.
    pub launches: f64,
    /// Time after the last operation of the step.
    pub end_idle: f64,
}

/// Simulates a step on a cluster from the logs of the positions along `pp`, in their order. Ranks of the mesh fill the
/// cluster in their order, whole nodes first.
///
/// The step is replayed twice, and the second time is the result: its first operations wait for the end of the step
/// before.
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
    let replayed = replay(logs, &mut times, options)?;
    let jitter = options.software.jitter(times.nodes());
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

impl PositionTime {
    /// Returns the seconds of kernels of one kind.
    pub fn computation(&self, kind: Computation) -> f64 {
        self.computation[kind as usize]
    }

    /// Returns the seconds of all kernels.
    pub fn computed(&self) -> f64 {
        self.computation.iter().sum()
    }

    /// Returns the exposed communication over all axes, messages excluded, in seconds.
    pub fn communicated(&self) -> f64 {
        self.exposed.iter().map(|(_, seconds)| seconds).sum()
    }

    /// Returns the exposed communication over one set of axes, in seconds.
    pub fn exposed_over(&self, axes: AxisSet) -> f64 {
        self.exposed.iter().find(|(known, _)| *known == axes).map_or(0.0, |(_, seconds)| *seconds)
    }

    /// Returns the sum of all parts, in seconds.
    pub fn total(&self) -> f64 {
        let PositionTime { waiting, transfers, launches, end_idle, .. } = self;
        self.computed() + self.communicated() + waiting + transfers + launches + end_idle
    }

    pub(crate) fn add_exposed(&mut self, axes: AxisSet, seconds: f64) {
        match self.exposed.iter_mut().find(|(known, _)| *known == axes) {
            Some((_, sum)) => *sum += seconds,
            None => self.exposed.push((axes, seconds)),
        }
    }

    fn add(&mut self, other: &PositionTime) {
        self.computation.iter_mut().zip(other.computation).for_each(|(sum, seconds)| *sum += seconds);
        other.exposed.iter().for_each(|(axes, seconds)| self.add_exposed(*axes, *seconds));
        self.waiting += other.waiting;
        self.transfers += other.transfers;
        self.launches += other.launches;
        self.end_idle += other.end_idle;
    }

    fn scale(&mut self, factor: f64) {
        self.computation.iter_mut().for_each(|seconds| *seconds *= factor);
        self.exposed.iter_mut().for_each(|(_, seconds)| *seconds *= factor);
        for seconds in [&mut self.waiting, &mut self.transfers, &mut self.launches, &mut self.end_idle] {
            *seconds *= factor;
        }
    }
}
