//! The search of a mesh and its settings on a described cluster: `--plan`.
//!
//! 1. [`space`]: every mesh, ZeRO stage and schedule that the settings accept, and whose state fits.
//! 2. [`estimate`]: a step time and a memory for each candidate, composed of small dry runs ([`cell`]), the simulation
//!    of its schedule ([`bubbles`]) and the collectives over the ranks that share tokens ([`communication`]).
//! 3. [`search`]: the candidates with the best estimates are dry-run in full and simulated; only these numbers are
//!    printed.
//! 4. [`ranking`], and the [`report`] with its [`rules`] of thumb, and the best plan on other numbers of GPUs
//!    ([`scaling`]); if nothing fits, what would ([`nothing_fits`]).

mod auto;
mod bubbles;
mod candidate;
mod cell;
mod cells;
mod communication;
mod effort;
mod estimate;
mod estimated_points;
mod left_out;
mod nothing_fits;
mod omissions;
mod parallel;
mod planned_run;
mod ranking;
mod report;
mod rules;
mod scaling;
mod search;
mod simulated_candidate;
mod simulations;
mod space;
#[cfg(test)]
mod tests;

use crate::train::config::{ConfigError, OutputForm, RunSettings};
use crate::train::console::counted;
use crate::train::{Error, Result, Task};
use meshwright_sim::cluster::SizedCluster;

pub use auto::choose_planned;
use effort::{Effort, TOP};
use nothing_fits::explain_misfit;
use search::{Found, search};
use simulated_candidate::follow_course;

pub use estimated_points::EstimatedPoint;
pub use planned_run::PlannedRun;
pub use report::PlanReport;
pub use scaling::ScalingPoint;

/// Searches the best plans on all GPUs of `on`, and returns the report of `--plan`. It has the course of the best
/// plan's step if it is not printed as text alone, and the best plan on other numbers of GPUs for `--report`.
///
/// # Errors
/// Settings that are wrong on every mesh, and a model that does not fit on any.
pub fn plan_run<T: Task>(settings: &RunSettings, on: &SizedCluster) -> Result<PlanReport> {
    let limit = settings.memory_limit.map_or(f64::INFINITY, |bytes| bytes as f64);
    let on = &on.clone().with_memory_limit(limit);
    let peak = on.cluster.gpu.peak_of(settings.dtype().dtype());
    peak.map_err(|error| Error::Input(format!("--plan: {error}")))?;
    let mut found = search::<T>(settings, on, Effort::to_rank(settings.top.unwrap_or(TOP)))?;
    let is_followed = settings.report.is_some() || settings.trace.is_some();
    if let Some(best) = found.plans.first_mut() {
        if is_followed || settings.out == Some(OutputForm::Json) {
            best.run = follow_course::<T>(settings, on, &best.candidate)?;
        }
        return Ok(PlanReport::new::<T>(settings, on, found));
    }
    match &found.smallest {
        Some(smallest) => Err(explain_misfit::<T>(settings, on, smallest)),
        None => Err(explain_refusal(settings, on, found)),
    }
}

/// Explains why no mesh is accepted.
fn explain_refusal(settings: &RunSettings, on: &SizedCluster, found: Found) -> Error {
    let left_out = found.left_out;
    match (left_out.common, left_out.first, left_out.parts) {
        (Some(problems), ..) if !problems.is_empty() => {
            Error::Config(ConfigError::Invalid(problems))
        }
        (_, Some(reason), _) => Error::Input(reason),
        (.., None) => Error::Input(format!(
            "--plan: no mesh of {} of `{}` has these settings; leave out degrees of --fix, or settings such as --cp, \
             --zero, --schedule and --micro-batches",
            counted(on.gpus, "GPU"),
            on.cluster.name,
        )),
        (.., Some(parts)) => Error::Input(format!(
            "--batch {} does not divide into the parts of any mesh of {} of `{}` that is compared; use a multiple of \
             {}, or fix other degrees",
            settings.batch,
            counted(on.gpus, "GPU"),
            on.cluster.name,
            parts
        )),
    }
}
