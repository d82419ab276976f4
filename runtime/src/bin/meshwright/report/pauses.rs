//! Times between two steps that no metric explains.

use std::collections::BTreeMap;

use meshwright::train::{page_paragraph, page_table};

use super::run_steps::{RunSteps, median};

/// Pauses of a run that are listed.
const LISTED: usize = 10;

/// Shortest pause, in seconds and in steps.
const SHORTEST: f64 = 2.0;
const SHORTEST_STEPS: f64 = 10.0;

/// Returns the longest pauses of each run.
pub fn table_of_pauses(runs: &[RunSteps]) -> String {
    let mut rows = Vec::new();
    for run in runs {
        let mut pauses = pauses(run);
        pauses.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        pauses.truncate(LISTED);
        pauses.sort_by_key(|(step, _)| *step);
        let row =
            |(step, seconds)| [run.name.clone(), format!("{step}"), format!("{seconds:.1} s")];
        rows.extend(pauses.into_iter().map(row));
    }
    if rows.is_empty() {
        return page_paragraph(
            "No two steps are further apart than the step and the save between them.",
        );
    }
    page_paragraph(
        "Pauses: time before a step that is neither of the step nor of a save. A restart makes one, with the steps \
         that are repeated; an evaluation, too.",
    ) + &page_table(["run", "before step", "pause"], 1, rows)
}

/// Returns the steps with a pause before them, in seconds.
fn pauses(run: &RunSteps) -> Vec<(u64, f64)> {
    let seconds = |metric: &str| -> BTreeMap<u64, f64> {
        let of = run.of(metric).into_iter();
        of.filter_map(|(step, value)| Some((step, value? / 1e3))).collect()
    };
    let (steps, saves) = (seconds("step_ms"), seconds("save_ms"));
    let typical = median(steps.values().copied().collect()).unwrap_or_default();
    let shortest = SHORTEST.max(SHORTEST_STEPS * typical);
    let times = run.of("time");
    let pause = |pair: &[(u64, Option<f64>)]| {
        let [(_, before), (step, after)] = pair else { return None };
        let spent = steps.get(step)? + saves.get(step).copied().unwrap_or_default();
        Some((*step, (*after)? - (*before)? - spent))
    };
    times.windows(2).filter_map(pause).filter(|(_, pause)| *pause >= shortest).collect()
}
