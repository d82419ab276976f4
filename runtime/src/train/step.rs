//! One training step: forward and backward of each micro-batch, gradient accumulation and reduction,
//! gradient clipping, update.

use crate::comm::Site;
use crate::nn::{Built, Layer};
use crate::optim::{Ema, OptimizerError};
use crate::parity::Observed;
use crate::pipeline::{ExecutorError, Pipeline};
use crate::tensor::{Mean, Metric, ParamRef, Rank};
use meshwright_core::__internal as scope;

use super::config::{Config, OnNan, OptimizerConfig};
use super::cuda_graphs::CudaGraphs;
use super::micro_batch::{
    EagerLauncher, GradAccumulator, MicroBatchLauncher, StepGradients, StepInput,
};
use super::pipeline_step::{ScheduleTimes, ScheduledStep, run_schedule};
use super::run_optimizer::{RunOptimizer, Synchronized};
use super::task::Task;
use crate::state_dict::TrainingState;

/// The training state of one rank: its shards of the model, the optimizer and the moving average.
pub struct RankState<M> {
    pub rank: Rank,
    pub built: Built<M>,
    /// The stages of this rank, if the mesh has a `pp` axis.
    pub pipeline: Option<Pipeline>,
    pub optimizer: RunOptimizer,
    /// `--ema`.
    pub average: Option<Ema>,
}

impl<M> RankState<M> {
    /// Creates the state of a run that begins with `built`. Every rank calls it.
    ///
    /// # Errors
    /// As [`RunOptimizer::new`].
    pub fn new(
        rank: Rank,
        built: Built<M>,
        pipeline: Option<Pipeline>,
        config: &Config,
    ) -> Result<Self, OptimizerError> {
        let optimizer = RunOptimizer::new(&rank, &built.units, config)?;
        let average = config.optimizer.ema.map(|decay| Ema::new(&rank, &built.units, decay));
        Ok(RankState { rank, built, pipeline, optimizer, average })
    }

    /// Runs `body` with the model that all replicas have. Every rank calls it.
    pub fn with_shared_params<T>(
        &mut self,
        synchronized: Synchronized,
        body: impl FnOnce(&Self) -> T,
    ) -> T {
        self.optimizer.show_shared_params(synchronized);
        let result = body(self);
        self.optimizer.show_own_params();
        result
    }

    /// Returns the state that checkpoints hold. `params` are the model's.
    pub fn training_state<'a>(&'a self, params: &'a [ParamRef]) -> TrainingState<'a> {
        let RankState { optimizer, average, .. } = self;
        TrainingState { params, optimizer, average: average.as_ref() }
    }
}

/// Results of one training step.
pub struct StepStats {
    pub loss: f64,
    /// Tokens that the loss averages over.
    pub tokens: u64,
    /// Gradient norm before clipping: the mean of those of the replicas, if they train apart.
    pub grad_norm: f64,
    /// Mean squared norm of the gradient of a micro-batch, if it is measured.
    pub first_squares: Option<f64>,
    pub lr: f64,
    pub seconds: f64,
    /// Times of the pipeline schedule on this rank, if the mesh has a `pp` axis.
    pub pipeline: Option<ScheduleTimes>,
    /// This rank's shares of the losses of the rows of each micro-batch, if they are kept.
    pub row_shares: Vec<Option<Vec<f64>>>,
    /// The reason why the update was left out, on all ranks alike.
    pub skipped: Option<NonFinite>,
}

/// Failure of a training step. Parameters are as before the step.
pub enum StepFailure {
    /// A loss or gradient norm that is not finite, on all ranks alike.
    NonFinite(NonFinite),
    /// A pipeline schedule or boundaries that differ between ranks.
    Pipeline(ExecutorError),
}

/// A loss or gradient norm that is infinite or NaN.
pub struct NonFinite {
    pub quantity: &'static str,
    /// Value over all ranks.
    pub value: f64,
    /// Contribution of this rank.
    pub local: f64,
}

/// Trains on one global batch, and records the loss and the gradients before clipping in `observed`. Every rank calls
/// it.
///
/// # Errors
/// See [`StepFailure`].
pub fn train_step<T: Task>(
    state: &mut RankState<T::Model>,
    task: &T,
    graphs: &mut CudaGraphs<T>,
    (settings, on_nan): (&OptimizerConfig, OnNan),
    input: &StepInput<'_>,
    observed: Option<&mut Observed>,
) -> Result<StepStats, StepFailure> {
    let RankState { rank, built, pipeline, optimizer, average } = state;
    rank.set_step(input.step);
    let (StepGradients { losses, gradients }, pipeline_times) = match pipeline {
        Some(pipeline) => {
            let ScheduledStep { gradients, times } =
                run_schedule(pipeline, graphs, (rank, task, &built.model), input)
                    .map_err(StepFailure::Pipeline)?;
            (gradients, Some(times))
        }
        None => (accumulate_gradients((rank, task, &built.model), graphs, input), None),
    };

    let _pass = scope::begin_pass(scope::Pass::Update);
    // Reading a loss waits for the device; by now it has the whole backward pass queued.
    let (mut gradients, means) = gradients.reduce_with(&losses);
    let mut loss = Mean::default();
    let mut found = None;
    for (mean, micro_batch_loss) in means.into_iter().zip(&losses) {
        let local = || micro_batch_loss.local_sum();
        found = found.or_else(|| find_non_finite("loss", mean.value(), local));
        loss += mean;
    }
    let mut found = stop_at(found, on_nan)?;
    if let Some(observed) = observed {
        observed.loss(loss.value());
        observed.gradients(built, &gradients);
    }
    let micro_batches = input.micro_batches.len();
    let first_squares = rank.sums_first_squares().then(|| gradients.first_squares(micro_batches));
    let grad_norm = match settings.clip {
        Some(max_norm) => gradients.clip(max_norm),
        None => gradients.norm(),
    };
    // Each replica is clipped by its own norm; all of them leave out the update if one has to.
    let grad_norm = rank.mean_over_replicas(&Site::new("gradient norms"), grad_norm);
    if found.is_none() {
        let local = || gradients.local_squares();
        found = stop_at(find_non_finite("gradient norm", grad_norm, local), on_nan)?;
    }

    let lr = settings.lr.rate_at(input.step);
    let span = scope::begin_span();
    match average {
        _ if found.is_some() => optimizer.inner.skip(gradients),
        Some(average) => optimizer.inner.step_and_average(lr, gradients, average),
        None => optimizer.inner.step(lr, gradients),
    }
    if input.synchronizes {
        optimizer.synchronize_after(input.step + 1);
    }
    scope::end_span("optimizer", span);

    let seconds = input.start.elapsed().as_secs_f64();
    let row_shares = losses.iter().map(Metric::row_shares).collect();
    let (loss, tokens) = (loss.value(), loss.count());
    Ok(StepStats {
        loss,
        tokens,
        grad_norm,
        first_squares,
        lr,
        seconds,
        pipeline: pipeline_times,
        row_shares,
        skipped: found,
    })
}

/// Runs forward and backward of the micro-batches one after the other, each of them as a CUDA graph if possible.
fn accumulate_gradients<T: Task>(
    (rank, task, model): (&Rank, &T, &T::Model),
    graphs: &mut CudaGraphs<T>,
    input: &StepInput<'_>,
) -> StepGradients<T::Over> {
    let run = |launcher: &mut dyn MicroBatchLauncher<T>| {
        let mut losses = Vec::with_capacity(input.micro_batches.len());
        let mut gradients = GradAccumulator::default();
        for micro_batch in input.micro_batches() {
            let (loss, accumulated) =
                launcher.launch(&micro_batch, gradients, &|input, extra, gradients| {
                    let loss = task.loss(model, &model.forward(input), extra);
                    let metric = loss.metric();
                    // The last micro-batch starts the gradient reduction, which overlaps with its backward pass.
                    (metric, gradients.backward(loss, micro_batch.kind.is_last))
                })?;
            losses.push(loss);
            gradients = accumulated;
        }
        Ok(StepGradients { losses, gradients: gradients.into_complete() })
    };
    graphs.run_step(
        rank,
        |captured| run(captured),
        || {
            let Ok(gradients) = run(&mut EagerLauncher { rank, task }) else {
                unreachable!("eager launches do not fail");
            };
            gradients
        },
    )
}

fn find_non_finite(
    quantity: &'static str,
    value: f64,
    local: impl FnOnce() -> f64,
) -> Option<NonFinite> {
    (!value.is_finite()).then(|| NonFinite { quantity, value, local: local() })
}

/// Returns `found` if its step goes on without an update.
///
/// # Errors
/// `found`, if it ends the run.
fn stop_at(found: Option<NonFinite>, on_nan: OnNan) -> Result<Option<NonFinite>, StepFailure> {
    match (found, on_nan) {
        (Some(found), OnNan::Stop) => Err(StepFailure::NonFinite(found)),
        (found, _) => Ok(found),
    }
}
