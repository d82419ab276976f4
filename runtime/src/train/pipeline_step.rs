//! Forward and backward of a training step by a pipeline schedule.

use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::backend::StreamKind;
use crate::pipeline::{ExecutorError, MessageWait, Pipeline, PipelineStep, sum_tied_gradients};
use crate::tensor::Rank;

use super::cuda_graphs::CudaGraphs;
use super::micro_batch::{StepGradients, StepInput};
use super::task::Task;

/// Times of one rank in a pipeline schedule.
#[derive(Debug, Clone, Copy)]
pub struct ScheduleTimes {
    /// Time from the start of the schedule to the end of this rank's part.
    pub elapsed: Duration,
    /// Time of `elapsed` that the rank waited for messages.
    pub waited: Duration,
}

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
pub fn run_schedule<T: Task>(
    pipeline: &Pipeline,
    graphs: &mut CudaGraphs<T>,
    (rank, task, model): (&Rank, &T, &T::Model),
    input: &StepInput<'_>,
) -> Result<ScheduledStep<T::Over>, ExecutorError> {
    let start = Instant::now();
    // Every rank reads the rows of its data rank, so none are sent.
    let run = |input: Vec<_>, extra: Vec<T::Extra>| {
        pipeline.run_passes(model, &input, |model, output, micro_batch| {
            task.loss(model, output, &extra[micro_batch])
        })
    };
    let step: Result<_, ExecutorError> = graphs.run_step(
        rank,
        |graphs| {
            let run = |input, extra| {
                run(input, extra).expect("the first step has compared schedules and boundaries")
            };
            graphs.launch_schedule(input, run).map(Ok)
        },
        || {
            let micro_batches = input.micro_batches();
            let inputs = micro_batches.map(|next| task.input(&next.rows(rank)));
            let (input, extra) = inputs.unzip();
            let PipelineStep { losses, gradients, wait } = run(input, extra)?;
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
