//! Forward and backward of a training step by a pipeline schedule.

use std::time::{Duration, Instant};

use crate::pipeline::{ExecutorError, Pipeline, PipelineStep};
use crate::tensor::Rank;

use super::LanguageModel;
use super::micro_batch::{StepGradients, StepInput, tokens_and_targets};

/// Times of one rank in a pipeline schedule.
#[derive(Debug, Clone, Copy)]
pub struct ScheduleTimes {
    /// From the start of the schedule to the end of this rank's part.
    pub elapsed: Duration,
    /// Time of `elapsed` that the rank waited for messages.
    pub waited: Duration,
}

/// Dims of the tokens of `M`.
type TokenDims<M> = (<M as LanguageModel>::Batch, <M as LanguageModel>::Seq);

/// Gradients of a step by a pipeline schedule.
pub struct ScheduledStep<S> {
    pub gradients: StepGradients<S>,
    pub times: ScheduleTimes,
}

/// Runs forward and backward of all micro-batches by the schedule of `pipeline`. Every rank calls it.
///
/// # Errors
/// In the first step, if ranks have different schedules or boundaries.
pub fn run_schedule<M: LanguageModel>(
    pipeline: &Pipeline,
    rank: &Rank,
    model: &M,
    input: &StepInput<'_>,
) -> Result<ScheduledStep<TokenDims<M>>, ExecutorError> {
    // Every rank reads the tokens and targets of its data rank, so none are sent.
    let (mut tokens, mut targets) = (Vec::new(), Vec::new());
    for micro_batch in input.micro_batches() {
        let (own_tokens, own_targets) =
            tokens_and_targets(rank, &micro_batch.sizes, micro_batch.data);
        tokens.push(own_tokens);
        targets.push(own_targets);
    }
    let start = Instant::now();
    let step = pipeline.run_step(model, &tokens, |model, output, micro_batch| {
        model.loss_of_output(output, &targets[micro_batch])
    });
    let PipelineStep { losses, gradients, wait } = step?;
    let times = ScheduleTimes { elapsed: start.elapsed(), waited: wait.total() };
    Ok(ScheduledStep { gradients: StepGradients { losses, gradients }, times })
}
