//! The steps of one rank: build, load, train, checkpoint.

use std::sync::Arc;
use std::time::Instant;

use crate::backend::Backend;
use crate::comm::{Peers, RankComms};
use crate::data::{MicroBatch, Prefetch};
use crate::os::count_stoppable_step;
use crate::parity::Observed;
use crate::state_dict::TrainingStateMut;
use crate::state_dict::import_hf;
use crate::tensor::{Rank, Settings};
use crate::train::console::print_line;
use crate::train::cuda_graphs::CudaGraphs;
use crate::train::micro_batch::{StepInput, data_rows};
use crate::train::plan::{Plan, build_model};
use crate::train::record::StepTimer;
use crate::train::report::{
    AttentionBalance, NoiseScale, OwnMetrics, SourceLosses, StepObserver, StepReport, StepUsage,
};
use crate::train::step::{RankState, StepFailure, StepStats, train_step};
use crate::train::{Error, Result, Task};
use meshwright_store::__internal::load_checkpoint;

use super::background_save::BackgroundSave;
use super::batch_check::check_first_batches;
use super::end_cause::EndCause;
use super::evaluations::Evaluations;
use super::failed_save_count::FailedSaves;
use super::finite_params::find_infinite_param;
use super::recent_saves::RecentSaves;
use super::shared::Shared;
use super::skip_count::SkippedSteps;
use super::stop::{begin_last, begin_steps, stop_reason};

/// The observers of a rank, in the order of their calls.
type Observers<'a> = [&'a mut dyn StepObserver];

/// One rank, ready to train.
pub struct RankLoop<'a, T: Task> {
    pub(super) plan: &'a Plan,
    pub(super) task: Arc<T>,
    pub(super) shared: &'a Shared,
    // Freed before the model, whose memory graphs refer to.
    pub(super) graphs: CudaGraphs<T>,
    pub(super) state: RankState<T::Model>,
    balance: Option<AttentionBalance>,
    batches: Prefetch,
    /// The reason why this rank trains no step after the present one.
    pub(super) end_cause: Option<EndCause>,
    /// `None` without validation data.
    pub(super) evaluations: Option<Evaluations<'a>>,
    /// Completed steps.
    pub(super) done: u64,
    /// Completed steps at the last complete checkpoint.
    pub(super) saved: Option<u64>,
    pub(super) background_save: BackgroundSave,
    pub(super) failed_saves: FailedSaves,
    pub(super) recent_saves: RecentSaves,
    pub(super) skipped: SkippedSteps,
    /// A parameter that was loaded with elements that are infinite or NaN. Such elements of others are then not looked
    /// for.
    pub(super) loaded_infinite: Option<String>,
    /// `--noise-scale`.
    pub(super) noise: Option<NoiseScale>,
    /// The numbers of the steps, if they are compared with those on other meshes.
    pub(super) observed: Option<Observed>,
    /// Measures kernels and calls, for `--record`.
    pub timer: Option<Arc<StepTimer>>,
}

impl<'a, T: Task> RankLoop<'a, T> {
    /// Builds the model on this rank and loads its weights.
    pub fn new(plan: &'a Plan, shared: &'a Shared, comms: RankComms) -> Result<Self> {
        RankLoop::on_rank(plan, shared, comms, Rank::with_settings)
    }

    /// Builds the model like [`new`](Self::new) on the rank that `create` returns, which may be observed.
    pub fn on_rank(
        plan: &'a Plan,
        shared: &'a Shared,
        comms: RankComms,
        create: impl FnOnce(RankComms, Box<dyn Backend>, Settings) -> Rank,
    ) -> Result<Self> {
        let config = &plan.config;
        let backend = plan.machine.backend(comms.rank())?;
        let comms = comms.expecting(plan.memory.groups().cloned());
        let comms = plan.machine.connect(comms, &*backend)?;
        let row_losses = config.has_metrics() && plan.dataset.sources().len() > 1;
        let settings = Settings { row_losses, ..plan.memory.settings(config) };
        let rank = create(comms, backend, settings);
        let (built, mut pipeline) =
            build_model::<T::Model>(&rank, &plan.sizes, plan.pipeline.as_ref())?;
        if let (Some(pipeline), Some(_)) = (&mut pipeline, &config.stage_times) {
            pipeline.measure_stages();
        }
        let params = built.params();
        // Ranks may read their files at different speeds, and wait for the slowest one below.
        let waits_for_files = rank.comms().extend_time_limit();
        if let (None, Some(folder)) = (&plan.resume, &plan.weights) {
            import_hf(folder, &plan.hf_names, &params).map_err(Error::of_flag("--init-from"))?;
        }
        let mut state = RankState::new(rank.clone(), built, pipeline, config)?;
        let mut has_own_params = false;
        if let Some(checkpoint) = &plan.resume {
            let (optimizer, average) = (&mut state.optimizer, state.average.as_mut());
            let state = TrainingStateMut { params: &params, optimizer, average };
            let loaded = load_checkpoint(checkpoint, state);
            has_own_params = loaded.map_err(Error::of_flag("--resume"))?;
        }
        state.optimizer.begin(has_own_params);
        let is_loaded = plan.resume.is_some() || plan.weights.is_some();
        let infinite = if is_loaded { find_infinite_param(&rank, &params)? } else { None };
        let loaded_infinite = infinite.map(|param| param.path().to_owned());
        if let Some(checkpoint) = &plan.resume {
            // All ranks have loaded.
            checkpoint.release();
        }
        drop(waits_for_files);
        if let (Some(path), 0) = (&loaded_infinite, rank.index()) {
            let flag = if plan.resume.is_some() { "--resume" } else { "--init-from" };
            print_line(&format!(
                "warning: {flag}: the loaded `{path}` has elements that are infinite or NaN"
            ));
        }
        let rows = data_rows(&rank, config.batch, config.micro_batches);
        let batches = Prefetch::start(&plan.dataset, rows, plan.first_step()..config.steps)?;
        // An obstacle of the machine is first: removing one of the others may change nothing.
        let obstacle = plan.machine.cuda_graph_obstacle().or_else(|| match &state.pipeline {
            _ if config.record.is_some() => {
                Some("--record measures single kernels, which run eagerly".to_owned())
            }
            Some(_) if config.stage_times.is_some() => {
                Some("--stage-times runs eagerly".to_owned())
            }
            Some(pipeline) if !pipeline.is_in_rounds() && rank.comms().graph_pools().is_some() => {
                Some("the messages of MESHWRIGHT_NCCL_P2P=pairs cannot be captured".to_owned())
            }
            _ if !T::READS_TOKENS => Some("the inputs of this task cannot be captured".to_owned()),
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
            task: plan.task.get(),
            shared,
            graphs,
            state,
            balance,
            batches,
            end_cause: None,
            evaluations: Evaluations::new(plan),
            done: plan.first_step(),
            saved: None,
            background_save: BackgroundSave::default(),
            failed_saves: FailedSaves::default(),
            recent_saves: RecentSaves::default(),
            skipped: SkippedSteps::resumed(
                plan.resume.as_ref().map_or(0, |checkpoint| checkpoint.manifest().state.skipped),
            ),
            loaded_infinite,
            noise: NoiseScale::of_run(config),
            observed: None,
            timer: None,
        })
    }

    /// Trains to the last step, or until evaluations say to stop. Returns a report if the run is stopped before.
    pub(super) fn train(&mut self, observers: &mut Observers<'_>) -> Result<Option<String>> {
        let rank = self.state.rank.clone();
        let (first, total) = (self.plan.first_step(), self.plan.config.steps);
        if !self.is_final(first) {
            self.check_first_batches()?;
        }
        rank.compare_values_before_step();
        begin_steps(self.plan);
        self.evaluate_loaded(first)?;
        if self.is_interrupted() {
            return self.end_early(first).map(Some);
        }
        let is_complete = self.is_final(first);
        if is_complete && self.saved != Some(first) {
            // The folder of `--save` may be another one.
            self.save_loaded(first)?;
        }
        for step in first..if is_complete { first } else { total } {
            observers.iter_mut().for_each(|observer| observer.begin(&rank, step + 1));
            let mut report = self.run_step(&rank, step)?;
            self.done = step + 1;
            report.evaluation = self.evaluate_if_due(step + 1)?;
            self.observe_parameters();
            let observed = call_all(observers, |observer| observer.end(&report));
            if rank.index() == 0 {
                count_stoppable_step();
            }
            self.check_replicas(step + 1)?;
            self.save_if_due(step + 1)?;
            if rank.is_last_step() || self.is_interrupted() {
                let finished = call_all(observers, |observer| observer.finish(&rank));
                let report = self.end_early(step + 1)?;
                if let Err(error) = observed.and(finished) {
                    print_line(&format!("warning: {error}"));
                }
                return Ok(Some(report));
            }
            observed?;
            if self.is_final(step + 1) {
                break;
            }
        }
        rank.compare_last_updates();
        Ok(None)
    }

    /// Checks that the ranks have read the rows of the first step that they are to have.
    fn check_first_batches(&mut self) -> Result<()> {
        let first = self.plan.first_step();
        self.await_batch(first)?;
        let batch = self.batches.peek(first)?;
        check_first_batches(&self.state.rank, self.plan.config.batch, batch)
    }

    /// Waits for the batch of the next `step` (from 0), which may be far away.
    ///
    /// # Errors
    /// Another rank that has failed: this one waits for it in no call.
    fn await_batch(&mut self, step: u64) -> Result<()> {
        let comms = self.state.rank.comms();
        let store = self.plan.machine.store().map(|store| -> &dyn Peers { &**store });
        let check = || comms.check_peers(store, &format!("wait for the data of step {}", step + 1));
        if self.batches.wait_unless(|| check().is_err()) { Ok(()) } else { Ok(check()?) }
    }

    /// Trains on the batch of a step (from 0).
    fn run_step<'r>(&mut self, rank: &'r Rank, step: u64) -> Result<StepReport<'r>> {
        let start = Instant::now();
        let config = &self.plan.config;
        self.await_batch(step)?;
        let batch = self.batches.take_batch(step)?;
        // Replicas that train apart complete their round before a stop: only then is there one state to save.
        let is_synchronized = config.is_synchronized_after(step + 1);
        let data_wait = start.elapsed();
        // All ranks have to learn in this step that one of them trains no other.
        if step + 1 < config.steps {
            self.await_batch(step + 1)?;
            let failed = self.batches.peek(step + 1).err();
            let stop = if is_synchronized { stop_reason(config) } else { None };
            self.end_cause = EndCause::of(failed.map(Error::from).as_ref(), stop);
            if self.end_cause.is_some() {
                self.state.rank.announce_last_step();
            }
        } else if !self.is_evaluation_due(step + 1) {
            begin_last(self.plan, self.state.rank.index());
        }
        let micro_batches: Vec<MicroBatch<'_>> =
            (0..config.micro_batches).map(|index| batch.micro_batch(index)).collect();
        let sizes = [config.replica_batch(), config.seq];
        let (micro_batches, synchronizes) = (&micro_batches[..], true);
        let input = StepInput { step, start, sizes, micro_batches, synchronizes };
        let (state, graphs, task) = (&mut self.state, &mut self.graphs, &*self.task);
        let observed = self.observed.as_mut();
        let (trained, mut usage) = StepUsage::of(rank, || {
            let settings = (&config.optimizer, config.on_nan);
            train_step(state, task, graphs, settings, &input, observed)
        });
        (usage.data_wait, usage.step_time) = (data_wait, start.elapsed());
        if let Some(timer) = &self.timer {
            timer.end_step(rank);
        }
        let stats = trained.map_err(|failure| match failure {
            StepFailure::NonFinite(found) => self.stop_diverged(step, &found),
            StepFailure::Pipeline(error) => Error::Pipeline(error),
        })?;
        self.count_skipped(step, stats.skipped.as_ref())?;
        let noise_scale = self
            .noise
            .as_mut()
            .and_then(|noise| noise.after_step([stats.first_squares?, stats.grad_norm.powi(2)]));
        let StepStats { loss, tokens, grad_norm, lr, seconds, pipeline, row_shares, .. } = stats;
        // The loss of a task may count rows, but each position is computed.
        let positions = if T::READS_TOKENS { tokens } else { (config.batch * config.seq) as u64 };
        let balance = self.balance.as_ref();
        let (save_seconds, save_bytes) = self.recent_saves.take();
        let data = (&*self.plan.dataset, step);
        Ok(StepReport {
            rank,
            step: step + 1,
            loss,
            grad_norm,
            noise_scale,
            lr,
            tokens,
            positions,
            seconds,
            attention_balance: balance.map(|balance| balance.of_step(rank, micro_batches)),
            save_seconds,
            save_bytes,
            save_failed: self.failed_saves.take_unreported(),
            skipped: self.reported_skips(),
            evaluation: None,
            schedule: pipeline,
            sources: SourceLosses::of_step(rank, data, micro_batches, &row_shares),
            usage,
            own: OwnMetrics::default(),
        })
    }
}

/// Calls all observers, and returns the first error.
pub fn call_all(
    observers: &mut Observers<'_>,
    call: impl Fn(&mut dyn StepObserver) -> Result<()>,
) -> Result<()> {
    let results = observers.iter_mut().map(|observer| call(*observer));
    results.reduce(Result::and).unwrap_or(Ok(()))
}
