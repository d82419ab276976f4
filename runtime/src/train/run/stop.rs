//! Stops of a run by a signal or by `--stop-after`: all ranks complete the step, and save the state.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::os::{StopPhase, begin_last_step, begin_stop_phase, requested_stop};
use crate::train::config::Config;
use crate::train::plan::Plan;

/// The start of the program.
static START: OnceLock<Instant> = OnceLock::new();

/// Starts the clock of `--stop-after`, unless it runs.
pub fn start_clock() {
    START.get_or_init(Instant::now);
}

/// Returns the time since the start of the program.
pub(super) fn elapsed_time() -> Duration {
    START.get().map_or(Duration::ZERO, Instant::elapsed)
}

/// Begins the phase of the steps: a run that saves stops after its step. One that writes nothing has no such phase.
pub fn begin_steps(plan: &Plan) {
    if plan.config.writes_nothing() {
        return;
    }
    let phase = match (&plan.config.save, &plan.config.local_sgd) {
        (None, _) => StopPhase::Unsaved,
        (Some(_), None) => StopPhase::Saved,
        (Some(_), Some(_)) => StopPhase::SavedByRound,
    };
    begin(plan, phase);
}

/// Begins the last step: a run that saves is not stopped any more. Every rank calls it; the first one of a process
/// begins it.
pub(super) fn begin_last(plan: &Plan, rank: usize) {
    let own = plan.machine.own_rank();
    if plan.config.save.is_some() && rank == own.unwrap_or(0) {
        begin_last_step(rank > 0);
    }
}

/// Begins the phase after the last step: a run with results completes them.
pub(super) fn begin_end(plan: &Plan) {
    if plan.config.save.is_some() || plan.config.export_hf.is_some() {
        begin(plan, StopPhase::Ending);
    }
}

fn begin(plan: &Plan, phase: StopPhase) {
    begin_stop_phase(phase, plan.machine.own_rank().is_some_and(|rank| rank > 0));
}

/// Returns the reason why this rank stops after its step, if there is one.
pub(super) fn stop_reason(config: &Config) -> Option<String> {
    if let Some(signal) = requested_stop() {
        return Some(signal.to_owned());
    }
    let limit = config.stop_after?;
    let is_over = START.get().is_some_and(|start| start.elapsed() >= limit.0);
    is_over.then(|| format!("--stop-after {limit}"))
}
