//! Training steps and evaluations of a model whose stages are on several ranks.

use std::cell::OnceCell;
use std::collections::HashMap;

use crate::comm::CommError;
use crate::layout::{AxisId, Dims};
use crate::nn::{Built, Module, PartOutput, Sizes};
use crate::schedule::{Message, Schedule};
use crate::tensor::{
    Gradients, Loss, Metric, Part, PartKind, Pending, Rank, SegmentData, fail, parts_of,
};

use super::boundary::{BoundaryShape, boundary_of, kinds_of};
use super::model_stages::ModelStages;
use super::rank_stages::{PP, RankStages};
use super::{
    ExecutorError, MessagePart, MessageWait, PipelineExecutor, StagePlan, sum_tied_gradients,
};

/// The stages of a model on this rank, and the schedule that runs them.
pub struct Pipeline {
    rank: Rank,
    sizes: Sizes,
    schedule: Schedule,
    stages: RankStages,
    /// Created in the first step, from the shapes of its input.
    executor: OnceCell<PipelineExecutor>,
    /// Created in the first evaluation.
    evaluator: OnceCell<PipelineExecutor>,
}

/// Results of the forward and backward passes of a step.
pub struct PipelineStep<S> {
    /// Loss of each micro-batch.
    pub losses: Vec<Metric<S>>,
    /// Gradients of all micro-batches, whose reduction has started.
    pub gradients: Gradients<Pending>,
    /// Time that this rank has waited for messages.
    pub wait: MessageWait,
}

impl Pipeline {
    /// Creates the pipeline of a model that [`build_stages`](super::build_stages) has built by `plan`. The schedule has
    /// passed [`verify`](crate::schedule::verify), and places the stages as the plan does.
    ///
    /// # Panics
    /// If the model has no pipeline stages, or the schedule places other stages than the plan.
    pub fn new<M: Module>(
        rank: &Rank,
        built: &Built<M>,
        sizes: &Sizes,
        plan: &StagePlan,
        schedule: &Schedule,
    ) -> Pipeline {
        Pipeline {
            rank: rank.clone(),
            sizes: sizes.clone(),
            schedule: schedule.clone(),
            stages: RankStages::new(rank, built, plan, schedule),
            executor: OnceCell::new(),
            evaluator: OnceCell::new(),
        }
    }

    /// Runs forward and backward of all micro-batches by the schedule. Every rank calls it with the inputs of its data rank;
    /// `loss` computes the loss of a micro-batch, given by its index, from the output of the model, on the last stage.
    ///
    /// # Errors
    /// Of the first step, on all ranks alike: a schedule or boundaries that differ between ranks.
    ///
    /// # Panics
    /// If the number of inputs is not that of the schedule's micro-batches, or if a message fails, as with collectives.
    #[track_caller]
    pub fn run_step<M: Module<In: SegmentData>, S: Dims>(
        &self,
        model: &M,
        inputs: &[M::In],
        mut loss: impl FnMut(&M, &M::Out, usize) -> Loss<S>,
    ) -> Result<PipelineStep<S>, ExecutorError> {
        assert_eq!(inputs.len(), self.schedule.micro_batches, "the micro-batches of the schedule");
        let kinds = kinds_of::<M::In>();
        let inputs: Vec<Vec<Part>> = inputs.iter().map(parts_of).collect();
        let shapes = inputs.iter().map(|input| self.boundary_shapes(&kinds, input));
        let shapes: Vec<Vec<BoundaryShape>> = shapes.collect();
        let executor = self.executor(&self.executor, |message: Message| {
            self.message_parts(&shapes[message.micro_batch()], message)
        })?;
        let mut work = ModelStages {
            stages: &self.stages,
            model,
            inputs: &inputs,
            boundaries: &shapes,
            loss: &mut loss,
            gradients: Gradients::of_stages::<S>(&self.rank, PP),
            losses: (0..inputs.len())
                .map(|_| Metric::without_contribution(&self.rank).summed_over(PP))
                .collect(),
            passes: HashMap::new(),
            deferred: HashMap::new(),
        };
        let wait = executor.run_step(&mut work).unwrap_or_else(|error| fail(error));
        let gradients = sum_tied_gradients(work.gradients.complete());
        Ok(PipelineStep { losses: work.losses, gradients, wait })
    }

    /// Runs the forward pass of one input, without gradients, and applies `read` to the output of the model. Returns its
    /// result on the ranks of the last stage, `None` on the others. Every rank calls it.
    #[track_caller]
    pub fn evaluate<M: Module<In: SegmentData>, T>(
        &self,
        model: &M,
        input: &M::In,
        read: impl FnOnce(&M::Out) -> T,
    ) -> Result<Option<T>, ExecutorError> {
        let kinds = kinds_of::<M::In>();
        let input = parts_of(input);
        let shapes = self.boundary_shapes(&kinds, &input);
        let rank = self.stages.rank_of_input(&input);
        let parts = |message| self.message_parts(&shapes, message);
        let executor = self.executor(&self.evaluator, parts)?;
        self.rank.evaluate(|| {
            let mut output = None;
            let sent = |message: Message| self.message_parts(&shapes, message);
            let outcome = executor.evaluate(sent, |stage, buffers| {
                let parts = match stage.checked_sub(1) {
                    None => input.clone(),
                    Some(before) => shapes[before].parts_of_buffers(&rank, buffers),
                };
                let sent = match self.stages.forward_stage(model, stage, parts) {
                    PartOutput::Boundary(data) => data.parts,
                    PartOutput::Model(result) => {
                        output = Some(result);
                        Vec::new()
                    }
                };
                Ok::<_, CommError>(sent.iter().map(Part::buffer).collect())
            });
            outcome.unwrap_or_else(|error| fail(error));
            Ok(output.map(|output| read(&output)))
        })
    }

    /// Returns the lowest world rank with the last stage, whose output is that of the model.
    pub fn first_rank_of_last_stage(&self) -> usize {
        let shape = self.rank.comms().shape();
        let last = self.schedule.placement.last().copied().unwrap_or_default();
        shape.rank_of(&shape.coordinates(0).with(AxisId::Pp, last))
    }

    /// Returns the shape of the boundary after each stage but the last, for an input of the model.
    fn boundary_shapes(&self, input_kinds: &[PartKind], input: &[Part]) -> Vec<BoundaryShape> {
        let rank = self.stages.rank_of_input(input);
        let shape = |kinds: &Vec<PartKind>| {
            BoundaryShape::new(&rank, kinds, (input_kinds, input), &self.sizes)
        };
        self.stages.boundaries().iter().map(shape).collect()
    }

    fn message_parts(&self, shapes: &[BoundaryShape], message: Message) -> Vec<MessagePart> {
        shapes[boundary_of(message)].message_parts(&self.rank, message.kind())
    }

    /// Returns the executor in `cell`, which the first call creates for messages with these `parts`.
    fn executor<'a>(
        &self,
        cell: &'a OnceCell<PipelineExecutor>,
        parts: impl Fn(Message) -> Vec<MessagePart>,
    ) -> Result<&'a PipelineExecutor, ExecutorError> {
        if let Some(executor) = cell.get() {
            return Ok(executor);
        }
        let (comms, allocator) = (self.rank.comms(), self.rank.allocator());
        let executor = PipelineExecutor::new(comms, allocator, &self.schedule, parts)?;
        Ok(cell.get_or_init(|| executor))
    }
}
