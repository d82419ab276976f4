//! Micro-batches of a training step: their input, the accumulation of their gradients, and how they are launched.

use std::ops::Range;
use std::time::Instant;

use crate::data::{MicroBatch, rows_of_rank};
use crate::layout::{AxisSet, Dims, Shape};
use crate::tensor::{Accumulating, Gradients, Loss, Metric, Pending, Rank, Tokens};

use super::task::{InputOf, Rows, Task};

/// The input of one training step on this rank.
pub struct StepInput<'a> {
    pub step: u64,
    /// Start of the step, before its batch is read.
    pub start: Instant,
    /// Global batch, of replicas that train apart that of each, and sequence length.
    pub sizes: [usize; 2],
    /// Micro-batches of this rank, at least one.
    pub micro_batches: &'a [MicroBatch<'a>],
    /// True to synchronize replicas that train apart when that is due after the step.
    pub synchronizes: bool,
}

/// The input of one micro-batch.
pub struct MicroBatchInput<'a> {
    pub step: u64,
    /// Global batch and sequence length.
    pub sizes: [usize; 2],
    pub data: &'a MicroBatch<'a>,
    pub kind: MicroBatchKind,
}

/// Position of a micro-batch in its step, which decides the use of gradients in its backward pass: the first one
/// overwrites them, the others add to them, and the last one starts the gradient reduction over the data ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MicroBatchKind {
    pub is_first: bool,
    pub is_last: bool,
}

/// Losses by micro-batch, and the accumulated gradients, whose reduction has started.
pub struct StepGradients<S> {
    pub losses: Vec<Metric<S>>,
    pub gradients: Gradients<Pending>,
}

/// Gradients accumulated over the micro-batches of a step so far.
#[derive(Default)]
pub enum GradAccumulator {
    #[default]
    Empty,
    /// Gradients of some micro-batches.
    Partial(Gradients<Accumulating>),
    /// Gradients of all micro-batches.
    Complete(Gradients<Pending>),
}

/// Forward and backward pass of a micro-batch, from its input and the gradients accumulated before it.
pub type MicroBatchFn<'a, T> =
    dyn Fn(&InputOf<T>, &<T as Task>::Extra, GradAccumulator) -> (LossOf<T>, GradAccumulator) + 'a;

/// The loss of a micro-batch of a task, as a metric.
pub type LossOf<T> = Metric<<T as Task>::Over>;

/// Launcher of micro-batches: kernel by kernel ([`EagerLauncher`]), or as CUDA graphs.
pub trait MicroBatchLauncher<T: Task> {
    /// Runs `pass` on a micro-batch, and returns its loss and the gradients accumulated up to it.
    ///
    /// # Errors
    /// A CUDA graph that cannot be captured or replayed. The step must then be repeated eagerly.
    fn launch(
        &mut self,
        micro_batch: &MicroBatchInput<'_>,
        gradients: GradAccumulator,
        pass: &MicroBatchFn<'_, T>,
    ) -> Result<(LossOf<T>, GradAccumulator), CaptureError>;
}

/// Launches every kernel of a micro-batch separately. Never fails.
pub struct EagerLauncher<'a, T> {
    pub rank: &'a Rank,
    pub task: &'a T,
}

/// Reason why a step cannot run as CUDA graphs.
#[derive(Debug)]
pub enum CaptureError {
    /// No later step can be captured either.
    Permanent(String),
    /// Parameters have moved, or other targets are ignored; graphs of a later step can be captured.
    Transient,
}

impl<'a> StepInput<'a> {
    /// Returns the micro-batches in execution order.
    pub fn micro_batches(&self) -> impl Iterator<Item = MicroBatchInput<'a>> {
        let StepInput { step, sizes, micro_batches, .. } = *self;
        let last = micro_batches.len().saturating_sub(1);
        micro_batches.iter().enumerate().map(move |(index, data)| {
            let kind = MicroBatchKind { is_first: index == 0, is_last: index == last };
            MicroBatchInput { step, sizes, data, kind }
        })
    }
}

impl<T: Task> MicroBatchLauncher<T> for EagerLauncher<'_, T> {
    fn launch(
        &mut self,
        micro_batch: &MicroBatchInput<'_>,
        gradients: GradAccumulator,
        pass: &MicroBatchFn<'_, T>,
    ) -> Result<(LossOf<T>, GradAccumulator), CaptureError> {
        let (input, extra) = self.task.input(&micro_batch.rows(self.rank));
        Ok(pass(&input, &extra, gradients))
    }
}

impl MicroBatchInput<'_> {
    /// Returns the rows, of which a task makes the input of its model.
    pub fn rows<'a>(&'a self, rank: &'a Rank) -> Rows<'a> {
        Rows::new(rank, self.sizes[0], self.data)
    }
}

/// Returns the rows of a global batch of `batch` rows that this data rank reads, by micro-batch.
pub fn data_rows(rank: &Rank, batch: usize, micro_batches: usize) -> Vec<Range<usize>> {
    let degree = rank.comms().shape().degree_of(AxisSet::DATA);
    rows_of_rank(batch, micro_batches, data_position(rank), degree)
}

/// Returns the position of this rank among those that read different rows, also of replicas that train apart.
pub fn data_position(rank: &Rank) -> usize {
    rank.comms().shape().index_in_group(rank.index(), AxisSet::DATA)
}

/// Creates the tokens of a micro-batch, with their documents, and its targets.
pub fn tokens_and_targets<S: Shape>(
    rank: &Rank,
    sizes: &[usize],
    data: &MicroBatch<'_>,
) -> (Tokens<S>, Tokens<S>) {
    // Targets are made from whole rows, so they are right at the borders of a rank's positions, too.
    let from_rows = |ids: &[u32]| Tokens::from_micro_batch(rank, sizes, data.place, ids);
    let (tokens, targets) = (from_rows(data.tokens), from_rows(data.targets));
    match data.starts {
        Some(starts) => (tokens.with_documents(starts), targets),
        None => (tokens, targets),
    }
}

impl GradAccumulator {
    /// Runs the backward pass of `loss` and adds its gradients. After the last micro-batch, the gradient reduction over
    /// the data ranks is in progress.
    pub fn backward<S: Dims>(self, loss: Loss<S>, is_last: bool) -> GradAccumulator {
        match (self, is_last) {
            (GradAccumulator::Empty, false) => GradAccumulator::Partial(loss.accumulate()),
            (GradAccumulator::Empty, true) => GradAccumulator::Complete(loss.backward()),
            (GradAccumulator::Partial(gradients), false) => {
                GradAccumulator::Partial(gradients.accumulate(loss))
            }
            (GradAccumulator::Partial(gradients), true) => {
                GradAccumulator::Complete(gradients.backward(loss))
            }
            (GradAccumulator::Complete(_), _) => {
                unreachable!("no micro-batch follows the last one")
            }
        }
    }

    /// Makes the device wait for the gradient reduction, if the last micro-batch has started it.
    pub fn wait_for_reduction(&self) {
        if let GradAccumulator::Complete(gradients) = self {
            gradients.finish_sums();
        }
    }

    /// Returns the gradients of all micro-batches.
    ///
    /// # Panics
    /// Before the last micro-batch: a fault of the calling code.
    pub fn into_complete(self) -> Gradients<Pending> {
        match self {
            GradAccumulator::Complete(gradients) => gradients,
            GradAccumulator::Empty | GradAccumulator::Partial(_) => {
                unreachable!("a step has a last micro-batch")
            }
        }
    }
}
