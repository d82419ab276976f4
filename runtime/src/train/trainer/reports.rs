//! Reports of a trainer instead of training.

use std::sync::Arc;

use crate::os::print_text;
use crate::train::config::{Config, OutputForm, RunSettings};
use crate::train::explain::{Explanation, json_of, text_of};
use crate::train::page::{DryRunFiles, page_of_explanation, page_of_plan, page_of_simulation};
use crate::train::planner::{PlannedRun, plan_run};
use crate::train::preflight::compare_with_one_rank;
use crate::train::record::record_run;
use crate::train::simulate::{SimulatedRun, trace_of};
use crate::train::{Error, Result, Task};
use meshwright_sim::StepLog;
use meshwright_sim::cluster::SizedCluster;

use super::TaskTrainer;

impl<T: Task> TaskTrainer<T> {
    /// Compares the losses, gradients and updates of the steps of the run with one rank's, all ranks as threads on the
    /// CPU, and returns how close they are, in one line.
    ///
    /// # Errors
    /// [`Error::Mismatch`] with the first step, the axes and the fields that differ; errors of the runs, and a mesh of
    /// one rank.
    #[track_caller]
    pub fn preflight(&self) -> Result<String> {
        compare_with_one_rank::<T>(&self.plan)
    }

    /// Describes a training step, from a dry run, which takes no memory and computes nothing, at each position along
    /// `pp`, as text; with `--explain json`, as a JSON document:
    /// - its collectives and messages: their fields, axes and bytes in each pass, and what asynchronous ones overlap
    ///   with,
    /// - its kernels, by layer and forward function: their number, their FLOPs and bytes in each pass, and the bytes
    ///   that they keep for backward,
    /// - the peak of its memory: its moment, and the buffers in use then; in the document also the memory over the
    ///   step.
    ///
    /// # Errors
    /// Of the model or the optimizer, and a model that cannot run on zeros.
    pub fn explain(&self) -> Result<String> {
        Ok(explanation_text(&self.explanation()?, self.plan.config.explain))
    }

    /// Returns what [`explain`](Self::explain) describes.
    pub(crate) fn explanation(&self) -> Result<Explanation> {
        Explanation::new::<T>(&self.plan)
    }

    /// Returns the logs of a step of a dry run, at each position along `pp`: every kernel, collective, message and
    /// allocation of the rank with the largest shards, in their order.
    ///
    /// # Errors
    /// As [`explain`](Self::explain).
    pub fn step_logs(&self) -> Result<Vec<Arc<StepLog>>> {
        self.plan.step_logs::<T>()
    }

    /// Trains, and returns logs like [`step_logs`](Self::step_logs) of the last step that has run.
    ///
    /// # Errors
    /// As [`train`](Self::train).
    pub fn record_steps(self) -> Result<Vec<StepLog>> {
        record_run::<T>(&self.plan)
    }

    /// Simulates a training step on all GPUs of a described cluster, by the replay of a dry run.
    ///
    /// # Errors
    /// As [`explain`](Self::explain), and a cluster that cannot run the step: more ranks than it has GPUs, or a dtype
    /// without a known peak.
    pub fn simulate(&self, on: &SizedCluster) -> Result<SimulatedRun> {
        SimulatedRun::of_plan::<T>(&self.plan, on, self.plan.config.follows_course())
    }

    /// Prints the report of `--simulate` or `--explain`, and writes its files.
    pub(super) fn print_dry_run(&self) -> Result<()> {
        let TaskTrainer { plan, files, .. } = self;
        let Config { simulate, out, explain, mesh, .. } = &plan.config;
        let Some(on) = simulate else {
            let explanation = self.explanation()?;
            files.write_report(|| page_of_explanation(&plan.describe(), &explanation))?;
            return print_report(&explanation_text(&explanation, *explain));
        };
        let run = self.simulate(on)?;
        files.write_report(|| page_of_simulation(&plan.describe(), &run, &on.cluster))?;
        files.write_trace(|| trace_of(&run, mesh))?;
        match out {
            Some(OutputForm::Text) | None => print_report(&run.to_string()),
            Some(OutputForm::Json) => print_report(&format!("{}\n", serde_json::json!(run))),
        }
    }
}

/// Searches a plan, writes its files, and returns the text to print.
///
/// # Errors
/// As [`plan_run`], and files that cannot be written, before the search.
pub(super) fn print_plan<T: Task>(settings: &RunSettings, on: &SizedCluster) -> Result<String> {
    let files = DryRunFiles::check(settings.report.as_deref(), settings.trace.as_deref())?;
    let report = plan_run::<T>(settings, on)?;
    files.write_report(|| page_of_plan(&report))?;
    let PlannedRun { candidate, run } = report.best();
    files.write_trace(|| trace_of(run, &candidate.mesh))?;
    Ok(match settings.out {
        Some(OutputForm::Text) | None => report.to_string(),
        Some(OutputForm::Json) => format!("{}\n", report.to_json()),
    })
}

fn explanation_text(explanation: &Explanation, form: Option<OutputForm>) -> String {
    match form {
        Some(OutputForm::Json) => format!("{:#}\n", json_of(explanation)),
        Some(OutputForm::Text) | None => text_of(explanation),
    }
}

/// Prints the result of a run that writes no files.
pub(super) fn print_report(text: &str) -> Result<()> {
    print_text(text).map_err(|error| Error::Stdout { error, outputs: Vec::new() })
}
