//! The run of one rank: build, load, train, checkpoint, export, sample.

use std::time::Instant;

use crate::comm::RankComms;
use crate::data::{MicroBatch, Prefetch};
use crate::os::count_stoppable_step;
use crate::parity::Observed;
use crate::state_dict::{export_hf, import_hf};
use crate::tensor::Rank;
use crate::train::console::print_line;
use crate::train::cuda_graphs::CudaGraphs;
use crate::train::micro_batch::{StepInput, data_rows};
use crate::train::plan::{Plan, build_model};
use crate::train::report::{
    AttentionBalance, AttentionWork, MetricsRecorder, StepHistory, UsageTotals, memory_use,
};
use crate::train::step::{RankState, StepFailure, StepStats, train_step};
use crate::train::{Error, LanguageModel, Progress, Result, Summary};
use meshwright_store::__internal::{TrainingStateMut, load_checkpoint};

use super::background_save::BackgroundSave;
use super::batch_check::check_first_batches;
use super::documents::check_first_step_used_documents;
use super::end_cause::EndCause;
use super::failed_export::describe_repeated_export;
use super::failed_save_count::FailedSaves;
use super::finite_params::find_infinite_param;
use super::sample::sample_continuation;
use super::shared::Shared;
use super::stage_times::write_stage_times;
use super::stop::{begin_end, begin_last, begin_steps, stop_reason};
use super::targets::TargetCount;

/// The end of the run of a rank, the same on all ranks.
pub enum RunEnd {
    /// All steps are trained.
    Complete(Summary),
    /// A signal or `--stop-after` has stopped the run, whose state is saved: a report of it.
    Stopped(String),
}

/// One rank, ready to train.
pub struct RankLoop<'a, M: LanguageModel> {
    pub(super) plan: &'a Plan,
    shared: &'a Shared,
    // Freed before the model, whose memory graphs refer to.
    graphs: CudaGraphs<(M::Batch, M::Seq)>,
    pub(super) state: RankState<M>,
    recorder: Option<MetricsRecorder<'a>>,
    balance: Option<AttentionBalance>,
    batches: Prefetch,
    /// The reason why this rank trains no step after the present one.
    pub(super) end_cause: Option<EndCause>,
    /// Completed steps at the last complete checkpoint.
    pub(super) saved: Option<u64>,
    pub(super) background_save: BackgroundSave,
    pub(super) failed_saves: FailedSaves,
    /// A parameter that was loaded with elements that are infinite or NaN. Such elements of others are then not looked
    /// for.
    pub(super) loaded_infinite: Option<String>,
    /// The numbers of the steps, if they are compared with those on other meshes.
    pub(super) observed: Option<Observed>,
}

impl<'a, M: LanguageModel> RankLoop<'a, M> {
    /// Builds the model on this rank and loads its weights.
    pub fn new(plan: &'a Plan, shared: &'a Shared, comms: RankComms) -> Result<Self> {
        let config = &plan.config;
        let backend = plan.machine.backend(comms.rank())?;
        let comms = comms.expecting(plan.memory.groups().cloned());
        let comms = plan.machine.connect(comms, &*backend)?;
        let rank = Rank::with_settings(comms, backend, plan.memory.settings(config));
        let (built, mut pipeline) = build_model::<M>(&rank, &plan.sizes, plan.pipeline.as_ref())?;
        if let (Some(pipeline), Some(_)) = (&mut pipeline, &config.stage_times) {
            pipeline.measure_stages();
        }
        let params = built.params();
        // Ranks may read their files at different speeds, and wait for the slowest one below.
        let waits_for_files = rank.comms().extend_time_limit();
        if let (None, Some(folder)) = (&plan.resume, &plan.weights) {
            import_hf(folder, M::HF_NAMES, &params).map_err(Error::of_flag("--init-from"))?;
        }
        let mut state = RankState::new(rank.clone(), built, pipeline, &config.optimizer)?;
        if let Some(checkpoint) = &plan.resume {
            let (optimizer, average) = (&mut state.optimizer, state.average.as_mut());
            let state = TrainingStateMut { params: &params, optimizer, average };
            load_checkpoint(checkpoint, state).map_err(Error::of_flag("--resume"))?;
        }
        let is_loaded = plan.resume.is_some() || plan.weights.is_some();
        let infinite = if is_loaded { find_infinite_param(&rank, &params)? } else { None };
        let loaded_infinite = infinite.map(|param| param.path().to_owned());
        drop(waits_for_files);
        if let (Some(path), 0) = (&loaded_infinite, rank.index()) {
            let flag = if plan.resume.is_some() { "--resume" } else { "--init-from" };
            print_line(&format!(
                "warning: {flag}: the loaded `{path}` has elements that are infinite or NaN"
            ));
        }
        let recorder = (config.metrics.as_ref())
            .map(|_| MetricsRecorder::new(&rank, &state.built, plan, shared.metrics.as_ref()));
        let rows = data_rows(&rank, config.batch, config.micro_batches);
        let batches = Prefetch::start(&plan.dataset, rows, plan.first_step()..config.steps)?;
        // An obstacle of the machine is first: removing one of the others may change nothing.
        let obstacle = plan.machine.cuda_graph_obstacle().or_else(|| match &state.pipeline {
            Some(_) if config.stage_times.is_some() => {
                Some("--stage-times runs eagerly".to_owned())
            }
            Some(pipeline) if !pipeline.is_in_rounds() && rank.comms().graph_pools().is_some() => {
                Some("the messages of MESHWRIGHT_NCCL_P2P=pairs cannot be captured".to_owned())
            }
            _ if plan.dataset.ignores_targets() => Some(
                "the targets that --pack and --mask-borders ignore differ from step to step"
                    .to_owned(),
            ),
            _ => None,
        });
        let balance = AttentionBalance::new(&rank, &state.built.attentions, config.seq);
        let graphs = CudaGraphs::new(&rank, config.graphs, obstacle.as_deref());
        Ok(RankLoop {
            plan,
            shared,
            graphs,
            state,
            recorder,
            balance,
            batches,
            end_cause: None,
            saved: None,
            background_save: BackgroundSave::default(),
            failed_saves: FailedSaves::default(),
            loaded_infinite,
            observed: None,
        })
    }

    /// Trains to the last step, or until the run is stopped.
    pub fn run_steps(mut self) -> Result<RunEnd> {
        let config = &self.plan.config;
        let first = self.plan.first_step();
        let start = Instant::now();
        let rank = self.state.rank.clone();
        let mut progress = (rank.index() == 0).then(|| Progress::new(first, config.steps));
        let (mut usage, mut targets) = (UsageTotals::default(), TargetCount::default());
        let mut history = (rank.index() == 0).then(StepHistory::default);
        // A report that cannot be written fails the run after its results are saved.
        let mut report_failure = None;
        if first < config.steps {
            self.check_first_batches()?;
        } else {
            // Nothing is left to train; the folder of `--save` may be another one.
            self.save_loaded(first)?;
        }
        rank.compare_values_before_step();
        begin_steps(self.plan);
        for step in first..config.steps {
            if let Some(recorder) = &mut self.recorder {
                recorder.begin_step(&rank);
            }
            let (stats, work) = usage.count_step(&rank, || self.run_step(step))?;
            if let Some(recorder) = &mut self.recorder {
                recorder.end_step(&rank);
            }
            let balance = work.map(|work| match self.plan.dataset.documents() {
                Some(_) => work.balance_of_all(&rank),
                // All rows are alike.
                None => work.balance(),
            });
            if step == first && self.plan.dataset.documents().is_some() {
                check_first_step_used_documents(&rank)?;
            }
            if let Some(recorder) = &mut self.recorder {
                let failed = self.failed_saves.take_unreported();
                match recorder.record_step(&rank, step, &stats, balance, failed) {
                    Err(Error::Metrics(error)) => {
                        print_line(&format!("warning: {error}; training goes on without metrics"));
                        report_failure = Some(Error::Metrics(error));
                    }
                    recorded => recorded?,
                }
            }
            if let Some(warning) = targets.count_step(step, stats.tokens)
                && rank.index() == 0
            {
                print_line(&warning);
            }
            let rate = stats.tokens as f64 / stats.seconds;
            if let Some(progress) = &mut progress {
                progress.show_step(step, stats.loss, rate, balance);
            }
            if let Some(history) = &mut history {
                history.add_step(stats.loss, stats.grad_norm, rate);
            }
            if rank.index() == 0 {
                count_stoppable_step();
            }
            self.save_if_due(step + 1)?;
            if rank.is_last_step() {
                if let Some(progress) = &progress {
                    progress.finish();
                }
                let report = self.end_early(step + 1)?;
                rank.finish_trace();
                self.graphs.close();
                return Ok(RunEnd::Stopped(report));
            }
        }
        begin_end(self.plan);
        if let Some(progress) = &progress {
            progress.finish();
        }
        let elapsed = start.elapsed();
        rank.compare_last_updates();
        self.background_save.free();
        if self.saved != Some(config.steps) {
            self.check_finite(config.steps)?;
        }
        if let Some(warning) = targets.check_run(self.plan)?.filter(|_| rank.index() == 0) {
            print_line(&warning);
        }
        usage.count_step(&rank, || rank.finish_trace());
        self.graphs.close();
        let mut report = usage.report(&rank, &self.plan.memory)?;
        report.peak = self.recorder.as_ref().map(MetricsRecorder::peak);
        let stage_times = match &self.state.pipeline {
            Some(pipeline) => write_stage_times(&rank, pipeline, self.plan),
            None => Ok(()),
        };
        let mut average = self.state.average.take();
        let (sample, prompt_len) = match &mut average {
            Some(average) => average.with_average(|| self.export_and_sample()),
            None => self.export_and_sample(),
        }?;
        report.memory = memory_use(&rank, &self.plan.memory)?;
        stage_times?;
        if let Some(failure) = report_failure {
            return Err(failure);
        }
        let history = history.unwrap_or_default();
        let tokens_per_s = history.median_rate();
        let StepHistory { losses, grad_norms, .. } = history;
        let summary =
            Summary { losses, grad_norms, tokens_per_s, elapsed, report, sample, prompt_len };
        Ok(RunEnd::Complete(summary))
    }

    /// Checks that the ranks have read the rows of the first step that they are to have.
    pub(super) fn check_first_batches(&mut self) -> Result<()> {
        let batch = self.batches.peek(self.plan.first_step())?;
        check_first_batches(&self.state.rank, self.plan.config.batch, batch)
    }

    /// Trains on the batch of a step; also returns the work of its attention, if ranks of `cp` share it.
    pub(super) fn run_step(&mut self, step: u64) -> Result<(StepStats, Option<AttentionWork>)> {
        let start = Instant::now();
        let config = &self.plan.config;
        let batch = self.batches.take_batch(step)?;
        // All ranks have to learn in this step that one of them trains no other.
        if step + 1 < config.steps {
            self.end_cause = match self.batches.peek(step + 1) {
                Err(error) => Some(EndCause::of_data(&error)),
                Ok(_) => stop_reason(config).map(EndCause::Stop),
            };
            if self.end_cause.is_some() {
                self.state.rank.announce_last_step();
            }
        } else {
            begin_last(self.plan, self.state.rank.index());
        }
        let micro_batches: Vec<MicroBatch<'_>> =
            (0..config.micro_batches).map(|index| batch.micro_batch(index)).collect();
        let sizes = [config.batch, config.seq];
        let input = StepInput { step, start, sizes, micro_batches: &micro_batches };
        let (state, graphs) = (&mut self.state, &mut self.graphs);
        let stats = train_step(state, graphs, &config.optimizer, &input, self.observed.as_mut())
            .map_err(|failure| match failure {
                StepFailure::NonFinite(found) => self.stop_diverged(step, &found),
                StepFailure::Pipeline(error) => Error::Pipeline(error),
            })?;
        Ok((stats, self.balance.as_ref().map(|balance| balance.work(&micro_batches))))
    }

    /// Exports the model, and returns a sampled continuation with the length of its prompt; nothing without
    /// `--sample-tokens`.
    fn export_and_sample(&self) -> Result<(Vec<u32>, usize)> {
        let RankState { rank, built, pipeline, .. } = &self.state;
        if let (Some(folder), Some(format)) = (&self.plan.config.export_hf, &self.plan.export) {
            let exported = export_hf(rank, folder, format, M::HF_NAMES, &built.params());
            exported.map_err(Error::of_flag("--export-hf")).map_err(|error| {
                error.of_export(describe_repeated_export(self.plan, self.saved))
            })?;
        }
        if self.plan.config.sample_tokens == 0 {
            return Ok((Vec::new(), 0));
        }
        let model = &built.model;
        self.shared.sample(|| sample_continuation(rank, model, pipeline.as_ref(), self.plan))
    }
}
