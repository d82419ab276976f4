//! Forward passes of an evaluation. The run evaluates by them, and the memory plan runs them dry.

use crate::data::MicroBatch;
use crate::nn::Layer;
use crate::pipeline::ExecutorError;
use crate::tensor::Metric;

use super::step::RankState;
use super::task::{Rows, Task};

/// Evaluates the model on the micro-batches of a global batch of `batch` rows. Returns this rank's shares of the sum of
/// the losses over all targets, and of their number. Every rank calls it.
///
/// The micro-batches have the sizes of a training step. Its forward passes need at least as much memory.
///
/// # Errors
/// Boundaries of a pipeline that differ between ranks.
pub fn evaluate_batch<T: Task>(
    state: &RankState<T::Model>,
    task: &T,
    batch: usize,
    micro_batches: &[MicroBatch<'_>],
) -> Result<[f64; 2], ExecutorError> {
    let RankState { rank, built, pipeline, .. } = state;
    let evaluate = |data: &MicroBatch<'_>| {
        let (input, extra) = rank.evaluate(|| task.input(&Rows::new(rank, batch, data)));
        match pipeline {
            None => Ok(rank.evaluate(|| {
                let model = &built.model;
                task.loss(model, &model.forward(&input), &extra).metric()
            })),
            Some(pipeline) => pipeline.evaluate_loss(&built.model, &input, |model, output| {
                task.loss(model, output, &extra)
            }),
        }
    };
    // A device has the work of all of them before it is waited for.
    let losses: Result<Vec<Metric<_>>, _> = micro_batches.iter().map(evaluate).collect();
    let shares = losses?.into_iter().map(|loss| loss.shares());
    Ok(shares.fold([0.0; 2], |sums, shares| [sums[0] + shares[0], sums[1] + shares[1]]))
}
