//! The full dry run and simulation of a candidate.

use std::sync::Arc;

use crate::train::config::RunSettings;
use crate::train::machine::open_machine;
use crate::train::plan::Plan;
use crate::train::simulate::SimulatedRun;
use crate::train::{Result, Task};
use meshwright_sim::cluster::SizedCluster;

use super::candidate::Candidate;
use super::planned_run::PlannedRun;
use super::ranking::tie;

/// Dry-runs a candidate in full, and simulates it: with CUDA graphs, and without them if that is clearly faster, since
/// collectives of different process groups do not overlap each other in a graph.
///
/// # Errors
/// As a run that is only simulated.
pub fn simulate_candidate<T: Task>(
    settings: &RunSettings,
    on: &SizedCluster,
    candidate: &Candidate,
) -> Result<PlannedRun> {
    let mut plan = plan_of::<T>(settings, on, candidate)?;
    let run = SimulatedRun::of_plan::<T>(&plan, on, false)?;
    let planned = PlannedRun { candidate: *candidate, run };
    if !plan.config.graphs {
        return Ok(planned);
    }
    // An eager step has messages of its own, so its times come from another dry run.
    plan.config.graphs = false;
    let is_faster = |run: &SimulatedRun| run.step_s * (1.0 + tie(on.gpus)) < planned.run.step_s;
    if !is_faster(&SimulatedRun::of_plan::<T>(&plan, on, false)?) {
        return Ok(planned);
    }
    let eager = Candidate { is_eager: true, ..*candidate };
    let eager = simulate_candidate::<T>(settings, on, &eager)?;
    Ok(if is_faster(&eager.run) { eager } else { planned })
}

/// Simulates a plan with the course of its step.
///
/// # Errors
/// As [`simulate_candidate`].
pub fn follow_course<T: Task>(
    settings: &RunSettings,
    on: &SizedCluster,
    candidate: &Candidate,
) -> Result<SimulatedRun> {
    SimulatedRun::of_plan::<T>(&plan_of::<T>(settings, on, candidate)?, on, true)
}

fn plan_of<T: Task>(
    settings: &RunSettings,
    on: &SizedCluster,
    candidate: &Candidate,
) -> Result<Plan> {
    let config = candidate.settings(settings, on).resolve()?;
    let machine = Arc::from(open_machine(&config)?);
    Plan::new::<T>(config, machine, None)
}
