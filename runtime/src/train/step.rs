//! One training step: forward and backward of each micro-batch, gradient accumulation and reduction,
//! gradient clipping, update.

use crate::nn::Built;
use crate::optim::{Ema, Optimizer};
use crate::tensor::{Mean, Rank, scope};

use super::LanguageModel;
use super::config::OptimizerConfig;
use super::cuda_graphs::CudaGraphs;
use super::micro_batch::{GradAccumulator, StepGradients, StepInput};

/// The training state of one rank: its shards of the model, the optimizer and the moving average.
pub struct RankState<M> {
    pub rank: Rank,
    pub built: Built<M>,
    pub optimizer: Optimizer,
    /// `--ema`.
    pub average: Option<Ema>,
}

/// Results of one training step.
pub struct StepStats {
    pub loss: f64,
    /// Tokens that the loss averages over.
    pub tokens: u64,
    /// Gradient norm before clipping.
    pub grad_norm: f64,
    pub lr: f64,
    pub seconds: f64,
}

/// A loss or gradient norm that is infinite or NaN. Parameters are as before the step.
pub struct NonFinite {
    pub quantity: &'static str,
    /// Value over all ranks.
    pub value: f64,
    /// Contribution of this rank.
    pub local: f64,
}

/// Trains on one global batch. Every rank calls it.
///
/// # Errors
/// A loss or gradient norm that is not finite, on all ranks alike.
pub fn train_step<M: LanguageModel>(
    state: &mut RankState<M>,
    graphs: &mut CudaGraphs<(M::Batch, M::Seq)>,
    settings: &OptimizerConfig,
    input: &StepInput<'_>,
) -> Result<StepStats, NonFinite> {
    let RankState { rank, built, optimizer, average } = state;
    rank.set_step(input.step);

    // Gradient accumulation over micro-batches, each of them a CUDA graph if possible.
    let StepGradients { losses, gradients } = graphs.run_step(rank, |launcher| {
        let mut losses = Vec::with_capacity(input.micro_batches.len());
        let mut gradients = GradAccumulator::default();
        for micro_batch in input.micro_batches() {
            let (loss, accumulated) =
                launcher.launch(&micro_batch, gradients, &|tokens, targets, gradients| {
                    let loss = built.model.loss(tokens, targets);
                    let metric = loss.metric();
                    // The last micro-batch starts the gradient reduction, which overlaps with its backward pass.
                    (metric, gradients.backward(loss, micro_batch.kind.is_last))
                })?;
            losses.push(loss);
            gradients = accumulated;
        }
        Ok(StepGradients { losses, gradients: gradients.into_complete() })
    });

    // Reading a loss waits for the device; by now it has the whole backward pass queued.
    let mut loss = Mean::default();
    for micro_batch_loss in losses {
        let mean = micro_batch_loss.reduce();
        check_finite("loss", mean.value(), || micro_batch_loss.local_sum())?;
        loss += mean;
    }

    let mut gradients = gradients.reduce();
    let grad_norm = match settings.clip {
        Some(max_norm) => gradients.clip(max_norm),
        None => gradients.norm(),
    };
    check_finite("gradient norm", grad_norm, || gradients.local_squares())?;

    let lr = settings.lr.at(input.step);
    let span = scope::begin();
    match average {
        Some(average) => optimizer.step_and_average(lr, gradients, average),
        None => optimizer.step(lr, gradients),
    }
    scope::record("optimizer", span);

    let seconds = input.start.elapsed().as_secs_f64();
    Ok(StepStats { loss: loss.value(), tokens: loss.count(), grad_norm, lr, seconds })
}

fn check_finite(
    quantity: &'static str,
    value: f64,
    local: impl FnOnce() -> f64,
) -> Result<(), NonFinite> {
    if value.is_finite() { Ok(()) } else { Err(NonFinite { quantity, value, local: local() }) }
}
