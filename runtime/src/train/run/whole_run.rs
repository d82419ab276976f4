//! The run of one rank: its steps with all observers, then its exports, its sample and its summary.

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use crate::state_dict::export_hf;
use crate::tensor::Rank;
use crate::train::plan::Plan;
use crate::train::record::MeasuredSteps;
use crate::train::report::{
    Goodput, MetricsRecorder, Progress, StepHistory, StepObserver, StepUsage, memory_use,
};
use crate::train::step::RankState;
use crate::train::{Error, Result, Summary, Task};

use super::documents::DocumentsCheck;
use super::failed_export::describe_repeated_export;
use super::rank_loop::{RankLoop, call_all};
use super::sample::sample_continuation;
use super::shared::Shared;
use super::stage_times::write_stage_times;
use super::stop::{begin_end, elapsed_time};
use super::targets::TargetCount;

/// Creates an observer on the thread of a rank.
pub type ObserverFactory = Box<dyn Fn(&Rank) -> Result<Box<dyn StepObserver>> + Send + Sync>;

/// The end of the run of a rank, the same on all ranks.
pub enum RunEnd {
    /// All steps are trained.
    Complete(Box<Summary>),
    /// A signal or `--stop-after` has stopped the run, whose state is saved: a report of it.
    Stopped(String),
}

impl<T: Task> RankLoop<'_, T> {
    /// Trains to the last step, or until the run is stopped, with the observers that the program has added.
    /// `measured` records the last steps, if there is one.
    pub fn run_steps(
        mut self,
        added: &[ObserverFactory],
        mut measured: Option<MeasuredSteps<'_>>,
    ) -> Result<RunEnd> {
        let (plan, rank) = (self.plan, self.state.rank.clone());
        let is_first = rank.index() == 0;
        let mut documents = DocumentsCheck::new(plan);
        let mut metrics = plan.config.has_metrics().then(|| {
            let peak = plan.machine.peak_flops(rank.compute_dtype());
            let (dataset, files) = (Some(&*plan.dataset), Arc::clone(&self.shared.metrics));
            MetricsRecorder::new(&rank, plan.flops.total(), dataset, peak, files)
        });
        if let Some(metrics) = metrics.as_mut().filter(|_| is_first) {
            let save = plan.config.save.as_ref().map(|save| save.dir.as_path());
            let files = self.shared.metrics.lock().unwrap_or_else(PoisonError::into_inner);
            let earlier = if plan.first_step() == 0 { Some(0.0) } else { files.earlier_seconds() };
            metrics.goodput = Goodput::new(save, earlier, elapsed_time());
        }
        let mut targets = TargetCount::new(plan);
        let (steps, line_every) = (plan.config.steps, plan.config.log_every.0);
        let prints = is_first && !plan.config.quiet;
        let mut progress = prints.then(|| Progress::new(plan.first_step(), steps, line_every));
        let mut history = is_first.then(StepHistory::default);
        let mut usage = StepUsage::default();
        let mut added: Vec<_> = added.iter().map(|make| make(&rank)).collect::<Result<_>>()?;
        let mut observers: Vec<&mut dyn StepObserver> = vec![&mut documents, &mut targets];
        // They add metrics.
        observers.extend(added.iter_mut().map(|observer| &mut **observer as &mut dyn StepObserver));
        let reports: [&mut dyn StepObserver; 4] =
            [&mut metrics, &mut progress, &mut history, &mut usage];
        observers.extend(reports);
        observers.push(&mut measured);
        let start = Instant::now();
        if let Some(report) = self.train(&mut observers)? {
            rank.finish_trace();
            self.graphs.close();
            return Ok(RunEnd::Stopped(report));
        }
        begin_end(plan);
        // A report that is incomplete fails the run after its results are saved.
        let reported = call_all(&mut observers, |observer| observer.finish(&rank));
        let elapsed = start.elapsed();
        self.background_save.free();
        if self.saved != Some(self.done) {
            self.check_finite(self.done)?;
        }
        let ((), rest) = StepUsage::of(&rank, || rank.finish_trace());
        usage.add(&rest);
        self.graphs.close();
        let mut report = usage.report(&rank, &plan.memory)?;
        report.peak = metrics.as_ref().map(MetricsRecorder::peak);
        let stage_times = match &self.state.pipeline {
            Some(pipeline) => write_stage_times(&rank, pipeline, plan),
            None => Ok(()),
        };
        let synchronized = self.state.optimizer.synchronized_after(self.done)?;
        let mut average = self.state.average.take();
        let (plan, shared, saved) = (self.plan, self.shared, self.saved);
        let (sample, prompt_len) = self.state.with_shared_params(synchronized, |state| {
            let end = || export_and_sample::<T>(state, (plan, shared), saved);
            match &mut average {
                Some(average) => average.with_average(end),
                None => end(),
            }
        })?;
        report.memory = memory_use(&rank, &plan.memory)?;
        stage_times.and(reported)?;
        let history = history.unwrap_or_default();
        let tokens_per_s = history.median_rate();
        let StepHistory { losses, grad_norms, .. } = history;
        let stops_early = self.done < plan.config.steps;
        let (evaluations, lowest) = match self.evaluations {
            Some(own) => (own.done, own.record.best),
            None => (Vec::new(), None),
        };
        Ok(RunEnd::Complete(Box::new(Summary {
            losses,
            grad_norms,
            evaluations,
            lowest,
            stops_early,
            tokens_per_s,
            elapsed,
            prediction: None,
            report,
            sample,
            prompt_len,
        })))
    }
}

/// Exports the model, which all replicas have, and returns a sampled continuation with the length of its prompt;
/// nothing without `--sample-tokens`. `saved` is the number of steps in the last checkpoint.
fn export_and_sample<T: Task>(
    state: &RankState<T::Model>,
    (plan, shared): (&Plan, &Shared),
    saved: Option<u64>,
) -> Result<(Vec<u32>, usize)> {
    let RankState { rank, built, pipeline, .. } = state;
    if let (Some(folder), Some(format)) = (&plan.config.export_hf, &plan.export) {
        let exported = export_hf(rank, folder, format, &plan.hf_names, &built.params());
        exported
            .map_err(Error::of_flag("--export-hf"))
            .map_err(|error| error.of_export(describe_repeated_export(plan, saved)))?;
    }
    if plan.config.sample_tokens == 0 {
        return Ok((Vec::new(), 0));
    }
    let model = &built.model;
    shared.sample(|| sample_continuation::<T>(rank, model, pipeline.as_ref(), plan))
}
