//! The main numbers of runs, as tables.

use std::collections::BTreeSet;

use meshwright::train::{page_paragraph, page_table};
use serde::Serialize;

use super::run_steps::{RunSteps, median};
use super::supervision::LoggedRun;

/// The main numbers of a run.
#[derive(Serialize)]
pub struct RunNumbers {
    name: String,
    steps: usize,
    last_step: u64,
    last_loss: Option<f64>,
    lowest_eval_loss: Option<f64>,
    tokens: f64,
    median_tokens_per_s: Option<f64>,
    /// Time from the start of the first step to the end of the last one.
    hours: Option<f64>,
    goodput: Option<f64>,
    skipped_steps: Option<f64>,
    saves: usize,
    median_save_ms: Option<f64>,
    longest_save_ms: Option<f64>,
    save_bytes: Option<f64>,
    failed_saves: Vec<u64>,
    /// Steps whose checkpoints have no line after them, so that only the log tells of them.
    saves_without_line: Vec<u64>,
}

impl RunNumbers {
    pub fn of(run: &RunSteps, logs: &[&LoggedRun]) -> RunNumbers {
        let in_lines: BTreeSet<u64> =
            run.of("save_ms").iter().map(|(step, _)| step.saturating_sub(1)).collect();
        let logged: BTreeSet<u64> = logs.iter().flat_map(|log| log.checkpoints()).collect();
        let last = |metric: &str| run.values(metric).last().copied();
        let extreme =
            |metric: &str, of: fn(f64, f64) -> f64| run.values(metric).into_iter().reduce(of);
        let times = run.values("time");
        let first_ms = run.values("step_ms").first().copied().unwrap_or_default();
        let span = times.last().zip(times.first()).map(|(last, first)| last - first);
        RunNumbers {
            name: run.name.clone(),
            steps: run.len(),
            last_step: run.of("loss").last().map_or(0, |(step, _)| *step),
            last_loss: last("loss"),
            lowest_eval_loss: extreme("eval_loss", f64::min),
            tokens: run.values("tokens").iter().sum(),
            median_tokens_per_s: median(run.values("tokens_per_s")),
            hours: span.map(|seconds| (seconds + first_ms / 1e3) / 3600.0),
            goodput: last("goodput"),
            skipped_steps: last("skipped"),
            saves: run.of("save_ms").len(),
            median_save_ms: median(run.values("save_ms")),
            longest_save_ms: extreme("save_ms", f64::max),
            save_bytes: last("save_bytes"),
            saves_without_line: logged.difference(&in_lines).copied().collect(),
            failed_saves: run.values("save_failed").iter().map(|step| *step as u64).collect(),
        }
    }
}

/// Returns the numbers of all runs.
pub fn table_of_runs(runs: &[RunNumbers]) -> String {
    let rows = runs.iter().map(|run| {
        [
            run.name.clone(),
            run.last_step.to_string(),
            shown(run.last_loss, 4, ""),
            shown(run.lowest_eval_loss, 4, ""),
            format!("{:.0}", run.tokens),
            shown(run.median_tokens_per_s, 0, ""),
            run.hours.map_or("-".to_owned(), time_text),
            shown(run.goodput.map(|fraction| 100.0 * fraction), 1, " %"),
            shown(run.skipped_steps, 0, ""),
        ]
    });
    let head = [
        "run",
        "last step",
        "loss",
        "lowest validation loss",
        "tokens",
        "tokens/s",
        "time",
        "goodput",
        "skipped updates",
    ];
    page_table(head, 1, rows)
}

/// Returns the numbers of the saves of all runs.
pub fn table_of_saves(runs: &[RunNumbers]) -> String {
    let steps = |steps: &[u64]| match steps {
        [] => "none".to_owned(),
        steps => steps.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    };
    let rows = runs.iter().map(|run| {
        [
            run.name.clone(),
            run.saves.to_string(),
            shown(run.median_save_ms, 1, " ms"),
            shown(run.longest_save_ms, 1, " ms"),
            shown(run.save_bytes.map(|bytes| bytes / 1e6), 1, " MB"),
            steps(&run.failed_saves),
            steps(&run.saves_without_line),
        ]
    });
    let head = [
        "run",
        "saves",
        "median wait",
        "longest wait",
        "size",
        "failed after step",
        "without a line after step",
    ];
    page_table(head, 1, rows)
        + &page_paragraph(
            "A save is in the metrics of the step after it. Those without such a line, as after the last step or \
             before a failure, are known by the log and the newest checkpoint of its folder.",
        )
}

/// Returns a time in hours, or shorter units.
fn time_text(hours: f64) -> String {
    match hours {
        hours if hours >= 1.0 => format!("{hours:.1} h"),
        hours if hours * 60.0 >= 1.0 => format!("{:.1} min", 60.0 * hours),
        hours => format!("{:.1} s", 3600.0 * hours),
    }
}

/// Returns a number with some digits after the point, and its unit.
fn shown(value: Option<f64>, digits: usize, unit: &str) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.digits$}{unit}"))
}
