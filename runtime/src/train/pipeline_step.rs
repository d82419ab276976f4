//! Forward and backward of a training step by a pipeline schedule.

use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::backend::StreamKind;
use crate::pipeline::{ExecutorError, MessageWait, Pipeline, PipelineStep, sum_tied_gradients};
use crate::tensor::{Rank, Tokens};

use super::LanguageModel;
use super::cuda_graphs::CudaGraphs;
use super::micro_batch::{StepGradients, StepInput, tokens_and_targets};

/// Times of one rank in a pipeline schedule.
#[derive(Debug, Clone, Copy)]
pub struct ScheduleTimes {
    /// Time from the start of the schedule to the end of this rank's part.
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

/// Runs forward and backward of all micro-batches by the schedule of `pipeline`, as a CUDA graph if possible. Every
/// rank calls it.
///
/// # Errors
/// In the first step, if ranks have different schedules or boundaries.
pub fn run_schedule<M: LanguageModel>(
    pipeline: &Pipeline,
    graphs: &mut CudaGraphs<TokenDims<M>>,
    (rank, model): (&Rank, &M),
    input: &StepInput<'_>,
) -> Result<ScheduledStep<TokenDims<M>>, ExecutorError> {
    let start = Instant::now();
    // Every rank reads the tokens and targets of its data rank, so none are sent.
    let run = |tokens: Vec<Tokens<_>>, targets: Vec<Tokens<_>>| {
        pipeline.run_passes(model, &tokens, |model, output, micro_batch| {
            model.loss_of_output(output, &targets[micro_batch])
        })
    };
    let step: Result<_, ExecutorError> = graphs.run_step(
        rank,
        |graphs| {
            let run = |tokens, targets| {
                run(tokens, targets).expect("the first step has compared schedules and boundaries")
            };
            graphs.launch_schedule(input, run).map(Ok)
        },
        || {
            let micro_batches = input.micro_batches();
            let inputs = micro_batches.map(|next| tokens_and_targets(rank, &next.sizes, next.data));
            let (tokens, targets) = inputs.unzip();
            let PipelineStep { losses, gradients, wait } = run(tokens, targets)?;
            Ok((StepGradients { losses, gradients }, Rc::new(wait)))
        },
    );
    let (StepGradients { losses, gradients }, wait) = step?;
    let times = schedule_times(rank, start, &wait);
    let gradients = StepGradients { losses, gradients: sum_tied_gradients(gradients) };
    Ok(ScheduledStep { gradients, times })
}

/// Waits for the end of this rank's part of a schedule, and returns its times.
fn schedule_times(rank: &Rank, start: Instant, wait: &MessageWait) -> ScheduleTimes {
    if let Some(device) = rank.allocator().device() {
        device.synchronize(&device.mark_stream(StreamKind::Compute));
    }
    ScheduleTimes { elapsed: start.elapsed(), waited: wait.total_of_completed() }
}
