//! Times between two steps that neither the step nor a save explains.

use std::collections::BTreeMap;

use meshwright::counted;
use meshwright::train::{page_paragraph, page_table};
use serde::Serialize;

use super::run_steps::{RunSteps, median};
use super::supervision::LoggedRun;

/// Pauses of all runs that are listed.
const LISTED: usize = 500;

/// Shortest pause, in seconds and in steps. Restarts are listed whatever they take.
const SHORTEST: f64 = 2.0;
const SHORTEST_STEPS: f64 = 10.0;

/// A pause.
#[derive(Debug, PartialEq, Serialize)]
pub struct Pause {
    run: String,
    /// The step before which it was; `None` after the last one.
    before_step: Option<u64>,
    seconds: f64,
    cause: String,
}

/// Returns the pauses of all runs, in their order.
pub fn pauses_of_runs(runs: &[RunSteps], logs: &[LoggedRun]) -> Vec<Pause> {
    let of_run = |run: &RunSteps| {
        let own = logs.iter().filter(|log| log.is_of(run, runs.len()));
        pauses(run, &own.collect::<Vec<_>>())
    };
    runs.iter().flat_map(of_run).collect()
}

/// Returns the pauses as HTML.
pub fn table_of_pauses(pauses: &[Pause]) -> String {
    if pauses.is_empty() {
        return page_paragraph(
            "No two steps are further apart than the step and the save between them.",
        );
    }
    let mut longest: Vec<&Pause> = pauses.iter().collect();
    longest.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let shortest = longest.get(LISTED).map_or(f64::NEG_INFINITY, |first| first.seconds);
    let listed: Vec<&Pause> = pauses.iter().filter(|pause| pause.seconds > shortest).collect();
    let mut about = format!(
        "{}, {:.1} s in all: time between two lines of metrics that is neither of the step nor of a save, from \
         {SHORTEST} s and {SHORTEST_STEPS} usual steps on, and each restart, with the steps that are repeated.",
        counted(pauses.len(), "pause"),
        pauses.iter().map(|pause| pause.seconds).sum::<f64>()
    );
    if listed.len() < pauses.len() {
        about += &format!(" The shortest {} are left out.", pauses.len() - listed.len());
    }
    let rows = listed.into_iter().map(|Pause { run, before_step, seconds, cause }| {
        let step = before_step.map_or("end".to_owned(), |step| step.to_string());
        [run.clone(), cause.clone(), step, format!("{seconds:.1} s")]
    });
    page_paragraph(&about) + &page_table(["run", "cause", "before step", "pause"], 2, rows)
}

fn pauses(run: &RunSteps, logs: &[&LoggedRun]) -> Vec<Pause> {
    let by_step =
        |metric: &str| -> BTreeMap<u64, Option<f64>> { run.of(metric).into_iter().collect() };
    let seconds = |metric: &str| -> BTreeMap<u64, f64> {
        by_step(metric).into_iter().filter_map(|(step, value)| Some((step, value? / 1e3))).collect()
    };
    let (steps, saves) = (seconds("step_ms"), seconds("save_ms"));
    let evaluated = by_step("eval_loss");
    let typical = median(steps.values().copied().collect()).unwrap_or_default();
    let shortest = SHORTEST.max(SHORTEST_STEPS * typical);
    let times = run.of("time");
    let times: Vec<(u64, f64)> =
        times.into_iter().filter_map(|(step, time)| Some((step, time?))).collect();
    let restart = |from: f64, to: f64| logs.iter().find_map(|log| log.restart_between(from, to));
    let name = || run.name.clone();
    let between = |pair: &[(u64, f64)]| {
        let [(last, before), (step, after)] = pair else { return None };
        let spent = steps.get(step)? + saves.get(step).copied().unwrap_or_default();
        let seconds = (after - before - spent).max(0.0);
        let restart = restart(*before, *after);
        if seconds < shortest && restart.is_none() {
            return None;
        }
        let is_evaluated = evaluated.contains_key(last);
        let other = || if is_evaluated { "evaluation" } else { "unknown" }.to_owned();
        let cause = restart.unwrap_or_else(other);
        Some(Pause { run: name(), before_step: Some(*step), seconds, cause })
    };
    let mut pauses: Vec<Pause> = times.windows(2).filter_map(between).collect();
    // A run that hung in the end, or was not started again.
    if let Some((_, last)) = times.last()
        && let Some(end) = logs.iter().filter_map(|log| log.end()).reduce(f64::max)
        && end - last >= shortest
    {
        let cause = "end of the last attempt in the log".to_owned();
        pauses.push(Pause { run: name(), before_step: None, seconds: end - last, cause });
    }
    pauses
}
