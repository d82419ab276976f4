//! Dry runs of training steps, and of the export and the continuation after them: everything is allocated as in the
//! run, but takes no memory, and nothing is computed.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use crate::backend::{Backend, Category, DType, DryRunBackend, Kernel, KernelObserver};
use crate::comm::{FailureCause, LaunchError, LaunchOptions, launch_rank};
use crate::data::{Batch, MicroBatch};
use crate::layout::{AxisId, AxisSet};
use crate::nn::Sizes;
use crate::tensor::{Rank, Settings};
use crate::train::config::{Config, DeviceChoice, OnNan, SaveConfig};
use crate::train::console::print_shared;
use crate::train::continuation::ContinuedModel;
use crate::train::cuda_graphs::CudaGraphs;
use crate::train::evaluation::evaluate_batch;
use crate::train::micro_batch::{StepInput, data_rows};
use crate::train::plan::memory::rank_usage::usage_of_ranks;
use crate::train::plan::pipeline::{PipelinePlan, build_model};
use crate::train::record::StepRecorder;
use crate::train::report::{StepUsage, UsageStart};
use crate::train::step::{RankState, StepFailure, train_step};
use crate::train::task::AnyTask;
use crate::train::{Error, Result, Task};
use meshwright_backend::__internal::ObservedBackend;
use meshwright_sim::StepLog;
use meshwright_store::__internal::saved_elements;

/// Steps of a dry run: the optimizer and gradients take memory from the first one on.
const STEPS: u64 = 2;
/// Micro-batches of a dry run without a pipeline: the first, another one, and the last.
const MICRO_BATCHES: usize = 3;

/// Bytes at the peak of each category, and of all together.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Peaks {
    /// Bytes in the order of [`Category::ALL`].
    pub of: [f64; Category::ALL.len()],
    pub total: f64,
}

impl Peaks {
    /// Raises each category, and the total, to that of `other` if it is larger.
    pub fn join(&mut self, other: &Peaks) {
        self.total = self.total.max(other.total);
        for (own, other) in self.of.iter_mut().zip(other.of) {
            *own = own.max(other);
        }
    }
}

/// The results of a dry run of a rank.
#[derive(Debug, Clone)]
pub struct DryRunFindings {
    /// Peaks of the training steps.
    pub steps: Peaks,
    /// Peaks up to the export, without the continuation.
    pub without_sample: Peaks,
    /// Peaks of the whole run.
    pub run: Peaks,
    /// Bytes of the copies of the state that the ranks together do not have, as replicas are copied once.
    pub without_copy: f64,
    /// True if a layer has read documents, or if the step was too large for a dry run.
    pub uses_documents: bool,
    /// The process groups that were used, by axes; `None` if the step was too large for a dry run.
    pub groups: Option<BTreeSet<AxisSet>>,
    /// The log of a step, if the run [records](DryRun::records) it.
    pub log: Option<Arc<StepLog>>,
    /// Mean FLOPs of a step of all ranks at the position, and its communication on the first one; `None` if the dry run
    /// has left out micro-batches.
    pub usage: Option<StepUsage>,
}

/// The run whose steps are dry-run.
pub struct DryRun<'a> {
    pub config: &'a Config,
    pub task: &'a AnyTask,
    pub sizes: &'a Sizes,
    pub pipeline: Option<&'a PipelinePlan>,
    /// True to record the last step, with all its micro-batches.
    pub records: bool,
}

impl DryRun<'_> {
    /// Returns the findings on the last rank at a position along `pp`, which has the largest parts of dims that do not
    /// divide evenly.
    ///
    /// An allocation beyond all addresses of the system counts as one that does not fit. A model that cannot run on
    /// zeros is reported, and has no findings.
    ///
    /// # Errors
    /// Of the model or the optimizer.
    pub fn on_position<T: Task>(
        &self,
        position: usize,
        settings: Settings,
    ) -> Result<Option<DryRunFindings>> {
        let recorder = self.records.then(|| Arc::new(StepRecorder::new(self.config.mesh)));
        let run = |rank: &Rank| self.run::<T>(rank, recorder.as_deref());
        let outcome = self.launch(position, settings, recorder.as_ref(), run);
        let mut failures = match outcome {
            Ok(findings) => return Ok(Some(findings)),
            Err(error) => error.failures,
        };
        match failures.pop().map(|failure| failure.cause) {
            Some(FailureCause::Error(error)) => Err(error),
            Some(FailureCause::OutOfMemory(error)) => {
                let mut peaks = Peaks::default();
                for (category, bytes) in error.live() {
                    peaks.of[category as usize] = bytes as f64;
                }
                peaks.of[error.category as usize] += error.requested as f64;
                peaks.total = peaks.of.iter().sum();
                let [steps, without_sample, run] = [peaks; 3];
                let (without_copy, uses_documents, groups) = (0.0, true, None);
                Ok(Some(DryRunFindings {
                    steps,
                    without_sample,
                    run,
                    without_copy,
                    uses_documents,
                    groups,
                    log: None,
                    usage: None,
                }))
            }
            cause => {
                let why = cause.map(|cause| cause.to_string()).unwrap_or_default();
                print_shared(&format!(
                    "warning: the memory plan leaves out activations, as its dry run failed: {why}"
                ));
                Ok(None)
            }
        }
    }

    /// Returns the log of a step on the last rank at a position along `pp`, with all micro-batches.
    ///
    /// # Errors
    /// Of the model or the optimizer, and a failure of the dry run.
    pub fn record_step<T: Task>(
        &self,
        position: usize,
        settings: Settings,
    ) -> Result<Arc<StepLog>> {
        let recorder = Arc::new(StepRecorder::new(self.config.mesh));
        let outcome = self.launch(position, settings, Some(&recorder), |rank| {
            let mut state = self.new_state::<T>(rank)?;
            self.run_steps::<T>(rank, &mut state, usize::MAX, || recorder.begin_step())?;
            state.optimizer.synchronize_all();
            Ok(Arc::new(recorder.end_step()))
        });
        outcome.map_err(Error::of_ranks)
    }

    /// Runs `body` on the last rank at a position along `pp`.
    fn launch<T: Send>(
        &self,
        position: usize,
        settings: Settings,
        recorder: Option<&Arc<StepRecorder>>,
        body: impl Fn(&Rank) -> Result<T> + Sync,
    ) -> std::result::Result<T, LaunchError<Error>> {
        let mesh = self.config.mesh;
        let last = mesh.coordinates(mesh.world_size() - 1).with(AxisId::Pp, position);
        let (options, rank) = (LaunchOptions::default(), mesh.rank_of(&last));
        launch_rank(&options, &mesh, rank, Error::exit_code, |comms| {
            let is_cpu = self.config.device == DeviceChoice::Cpu;
            let backend: Box<dyn Backend> =
                Box::new(if is_cpu { DryRunBackend::cpu() } else { DryRunBackend::on_device() });
            let comms = comms.over_nothing(!is_cpu);
            let rank = match recorder {
                Some(recorder) => recorder.observe(comms, backend, settings),
                None => {
                    // It counts FLOPs.
                    let backend = Box::new(ObservedBackend::new(backend, Arc::new(Unobserved)));
                    Rank::with_settings(comms, backend, settings)
                }
            };
            body(&rank)
        })
    }

    fn new_state<T: Task>(&self, rank: &Rank) -> Result<RankState<T::Model>> {
        let (built, pipeline) = build_model::<T::Model>(rank, self.sizes, self.pipeline)?;
        Ok(RankState::new(rank.clone(), built, pipeline, self.config)?)
    }

    fn run<T: Task>(&self, rank: &Rank, recorder: Option<&StepRecorder>) -> Result<DryRunFindings> {
        let mut state = self.new_state::<T>(rank)?;
        let [copied, copied_by_all] = self.copied_elements::<T>(rank, &state);
        let copy = rank.allocator().alloc(DType::F32, copied, Category::Offloaded);
        let most_micro_batches = if recorder.is_some() { usize::MAX } else { MICRO_BATCHES };
        let start = RefCell::new(UsageStart::new(rank));
        let begin_step = || {
            recorder.into_iter().for_each(StepRecorder::begin_step);
            start.replace(UsageStart::new(rank));
        };
        state.optimizer.start_largest();
        self.run_steps::<T>(rank, &mut state, most_micro_batches, begin_step)?;
        let is_whole = state.pipeline.is_some() || self.config.micro_batches <= most_micro_batches;
        let usage = is_whole.then(|| start.borrow().end(rank));
        state.optimizer.finish_largest();
        let ((), outer) = StepUsage::of(rank, || state.optimizer.synchronize_all());
        let every = self.config.local_sgd.map_or(1, |local| local.steps);
        let usage = usage.map(|usage| usage_of_ranks(rank, &state, usage));
        let usage = usage.map(|usage| usage.with_share(&outer, every));
        let log = recorder.map(|recorder| Arc::new(recorder.end_step()));
        drop(copy);
        let steps = peaks_of(rank);
        let uses_documents = rank.has_used_documents();
        let (synchronized, average) =
            (state.optimizer.synchronized_after(0)?, state.average.take());
        let without_sample = state.with_shared_params(synchronized, |state| {
            self.evaluate::<T>(rank, state)?;
            let end = || self.export_and_sample::<T>(rank, state);
            match average {
                Some(mut average) => average.with_average(end),
                None => end(),
            }
        })?;
        // On a device, the copies are in other memory.
        let ranks = rank.comms().shape().world_size() / rank.degree(AxisId::Pp);
        let not_copied =
            if rank.allocator().device().is_none() { copied * ranks - copied_by_all } else { 0 };
        let without_copy = (not_copied * DType::F32.bytes()) as f64;
        let (mut run, groups) = (peaks_of(rank), Some(rank.comms().used_groups()));
        // Another rank may have more optimizer state, which counts beside the rest of this one. Ranks at other
        // positions along other axes have as much.
        let elements = |rank: usize| state.optimizer.inner.state_elements_on(rank);
        let others = rank.comms().shape().group_of(rank.index(), AxisSet::ZERO);
        let most = others.into_iter().map(elements).max().unwrap_or(0);
        let more = (most - elements(rank.index())) * self.config.settings().state.bytes();
        run.of[Category::Optimizer as usize] += more as f64;
        run.total += more as f64;
        let findings = DryRunFindings {
            steps,
            without_sample,
            run,
            without_copy,
            uses_documents,
            groups,
            log,
            usage,
        };
        Ok(findings)
    }

    /// Returns the elements of the state that a rank copies to save them while it trains, and the elements that all
    /// ranks at its position along `pp` copy.
    fn copied_elements<T: Task>(&self, rank: &Rank, state: &RankState<T::Model>) -> [usize; 2] {
        let save = self.config.save.as_ref().filter(|save| save.asynchronous);
        let is_before_end = |save: &SaveConfig| {
            save.best || save.every.is_some_and(|every| every < self.config.steps)
        };
        if !save.is_some_and(is_before_end) {
            return [0, 0];
        }
        saved_elements(rank, &state.training_state(&state.built.params()))
    }

    /// Exports and samples, and returns the peaks before the sampling.
    fn export_and_sample<T: Task>(
        &self,
        rank: &Rank,
        state: &RankState<T::Model>,
    ) -> Result<Peaks> {
        if self.config.export_hf.is_some() {
            let params = state.built.params();
            params.iter().filter(|param| param.is_first_owner()).for_each(|param| {
                param.gather_unit();
            });
        }
        let peaks = peaks_of(rank);
        if self.config.sample_tokens > 0 {
            let (model, pipeline) = (&state.built.model, state.pipeline.as_ref());
            let DryRun { config, sizes, .. } = *self;
            let continued = ContinuedModel { rank, model, pipeline, config, sizes };
            let Some(continuation) = T::continuation(continued) else { return Ok(peaks) };
            // The last rank of `cp` has the position in the middle, and so the logits.
            let tokens = vec![0; continuation.width() / 2 + 1];
            continuation.draw_next(&tokens, 0)?;
        }
        Ok(peaks)
    }

    /// Runs all steps, with at most a number of micro-batches if there is no pipeline.
    fn run_steps<T: Task>(
        &self,
        rank: &Rank,
        state: &mut RankState<T::Model>,
        most_micro_batches: usize,
        begin_step: impl Fn(),
    ) -> Result<()> {
        let task = self.task.get::<T>();
        let mut graphs = CudaGraphs::<T>::new(rank, false, None);
        let most = if state.pipeline.is_some() { usize::MAX } else { most_micro_batches };
        self.with_micro_batches::<T, _>(rank, most, |sizes, micro_batches| {
            for step in 0..STEPS {
                begin_step();
                let start = Instant::now();
                // The replicas are synchronized after the last one.
                let synchronizes = false;
                let input = StepInput { step, start, sizes, micro_batches, synchronizes };
                // Numbers that are not finite are no failure here.
                if let Err(StepFailure::Pipeline(error)) = {
                    let settings = (&self.config.optimizer, OnNan::Stop);
                    train_step(state, &*task, &mut graphs, settings, &input, None)
                } {
                    return Err(Error::Pipeline(error));
                }
            }
            Ok(())
        })
    }

    /// Evaluates a batch of validation data, if there are some.
    fn evaluate<T: Task>(&self, rank: &Rank, state: &RankState<T::Model>) -> Result<()> {
        if self.config.validation.is_none() {
            return Ok(());
        }
        // No micro-batch leaves anything to the next one.
        let task = self.task.get::<T>();
        let shares = self.with_micro_batches::<T, _>(rank, 1, |[batch, _], micro_batches| {
            evaluate_batch(state, &*task, batch, micro_batches)
        });
        Ok(shares.map(drop)?)
    }

    /// Calls `run` with the sizes of a global batch, and with at most a number of this rank's micro-batches of it.
    fn with_micro_batches<T: Task, R>(
        &self,
        rank: &Rank,
        most: usize,
        run: impl FnOnce([usize; 2], &[MicroBatch<'_>]) -> R,
    ) -> R {
        let config = self.config;
        let count = config.micro_batches;
        let rows = data_rows(rank, config.batch, count);
        let elements = rows.iter().map(Range::len).sum::<usize>() * config.seq;
        let (batch, zeros);
        let micro_batches: Vec<MicroBatch<'_>> = if !T::READS_TOKENS {
            batch = Batch::of_zeros(&self.task.get::<T>().streams(), rows);
            (0..count.min(most)).map(|index| batch.micro_batch(index)).collect()
        } else if rank.leaves_out_numbers(elements) {
            zeros = rank.zeros(elements);
            let rows = rows.iter().cloned().enumerate().take(most);
            rows.map(|(index, rows)| zero_micro_batch(config, &zeros, rows, [index, count]))
                .collect()
        } else {
            batch = empty_batch(config, rows);
            (0..count.min(most)).map(|index| batch.micro_batch(index)).collect()
        };
        run([config.replica_batch(), config.seq], &micro_batches)
    }
}

/// No observer.
struct Unobserved;

impl KernelObserver for Unobserved {
    fn kernel_launched(&self, _: &Kernel) {}
}

/// Returns a batch of rows of token 0; of two documents each, if rows have documents.
fn empty_batch(config: &Config, micro_batches: Vec<Range<usize>>) -> Batch {
    let seq = config.seq;
    let rows = micro_batches.iter().map(Range::len).sum::<usize>();
    let tokens = vec![0; rows * seq];
    let second = seq / 2;
    let start = |token: usize| if token % seq < second { 0 } else { second as u32 };
    let starts = config.documents.map(|_| (0..rows * seq).map(start).collect());
    let (targets, streams, places) = (tokens.clone(), None, Vec::new());
    Batch { targets, tokens, starts, streams, rows, places, micro_batches }
}

/// Returns a micro-batch of rows of token 0, each of one document, whose numbers are all `zeros`.
fn zero_micro_batch<'a>(
    config: &Config,
    zeros: &'a [u32],
    rows: Range<usize>,
    place: [usize; 2],
) -> MicroBatch<'a> {
    let tokens = &zeros[..rows.len() * config.seq];
    let starts = config.documents.map(|_| tokens);
    MicroBatch { tokens, targets: tokens, starts, streams: None, rows, place }
}

/// Returns the peaks of a rank so far.
fn peaks_of(rank: &Rank) -> Peaks {
    let mut peaks = Peaks { total: rank.allocator().total_peak() as f64, ..Peaks::default() };
    for (category, bytes) in rank.allocator().peak() {
        peaks.of[category as usize] = bytes as f64;
    }
    peaks
}
