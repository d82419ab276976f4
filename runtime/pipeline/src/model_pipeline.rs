//! Training steps and evaluations of a model whose stages are on several ranks.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;

use crate::schedule::{Message, Verified, csv};
use meshwright_comm::CommError;
use meshwright_core::__internal::{fail, parts_of};
use meshwright_core::layout::{AxisId, Dims};
use meshwright_core::nn::{Built, Module, PartOutput, Sizes};
use meshwright_core::tensor::{
    Gradients, Loss, Metric, Part, PartKind, Pending, Rank, SegmentData,
};

use super::boundary::{BoundaryShape, boundary_of, kinds_of};
use super::model_stages::ModelStages;
use super::rank_stages::{PP, RankStages};
use super::stage_times::{StageTimes, TimedStages};
use super::{
    ExecutorError, MessagePart, MessageParts, MessageWait, PipelineExecutor, StagePlan,
    sum_tied_gradients,
};

/// The stages of a model on this rank, and the schedule that runs them.
pub struct Pipeline {
    rank: Rank,
    sizes: Sizes,
    schedule: Arc<Verified>,
    stages: RankStages,
    executor: PipelineExecutor,
    /// The buffers of a training step, agreed on in the first one, and again when the sizes of its inputs change.
    step_parts: RefCell<Option<StepParts>>,
    /// True after all ranks have agreed on the buffers of the first evaluation.
    has_evaluated: Cell<bool>,
    /// Times of this rank's stages, if they are measured.
    times: Option<StageTimes>,
}

/// The buffers of a training step.
struct StepParts {
    /// Local size of every dim of every input. All ranks of `pp` have the same.
    input_sizes: Vec<usize>,
    parts: Rc<MessageParts>,
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
    /// Creates the pipeline of a model that [`build_stages`](super::build_stages) has built by `plan`. The schedule
    /// places the stages as the plan does.
    ///
    /// # Errors
    /// A schedule for another number of ranks than the mesh has along `pp`.
    ///
    /// # Panics
    /// If the model has no pipeline stages, or the schedule places other stages than the plan.
    #[track_caller]
    pub fn new<M: Module>(
        rank: &Rank,
        built: &Built<M>,
        sizes: &Sizes,
        plan: &StagePlan,
        schedule: &Arc<Verified>,
    ) -> Result<Pipeline, ExecutorError> {
        let stages = RankStages::new(rank, built, plan, schedule.lowered());
        // Ranks of different data have no messages with each other, but sum gradients in the order of the schedule.
        let name = "the pipeline schedule";
        let text = || csv::write(schedule.lowered());
        rank.declared_values().note_setting(name, Location::caller(), text);
        Ok(Pipeline {
            rank: rank.clone(),
            sizes: sizes.clone(),
            schedule: Arc::clone(schedule),
            stages,
            executor: PipelineExecutor::new(rank.comms(), rank.allocator(), schedule)?,
            step_parts: RefCell::default(),
            has_evaluated: Cell::new(false),
            times: None,
        })
    }

    /// Measures the times of the stages in every step from now on: see [`stage_ms`](Self::stage_ms).
    pub fn measure_stages(&mut self) {
        self.times = Some(StageTimes::default());
    }

    /// Returns the milliseconds that a forward and a backward pass of each stage take for a micro-batch: the median
    /// over micro-batches and steps, without the first step if there are others, and the mean over the ranks that
    /// compute the stage. Every rank calls it, and all get the same.
    ///
    /// # Panics
    /// If the stages were not [measured](Self::measure_stages), or no step has run.
    pub fn stage_ms(&self) -> Vec<f64> {
        let times = self.times.as_ref().expect("the stages are measured");
        times.mean_over_ranks(&self.rank, &self.schedule.lowered().placement)
    }

    /// Runs forward and backward of all micro-batches by the schedule. Every rank calls it with the inputs of its data
    /// rank; `loss` computes the loss of a micro-batch, given by its index, from the output of the model, on the last
    /// stage.
    ///
    /// # Errors
    /// Of the first step, and of one whose inputs have other sizes than in the step before, on all ranks alike: a
    /// schedule or boundaries that differ between ranks.
    ///
    /// # Panics
    /// If the number of inputs is not that of the schedule's micro-batches, or if a message fails, as with collectives.
    #[track_caller]
    pub fn run_step<M: Module<In: SegmentData>, S: Dims>(
        &self,
        model: &M,
        inputs: &[M::In],
        loss: impl FnMut(&M, &M::Out, usize) -> Loss<S>,
    ) -> Result<PipelineStep<S>, ExecutorError> {
        let PipelineStep { losses, gradients, wait } = self.run_passes(model, inputs, loss)?;
        Ok(PipelineStep { losses, gradients: sum_tied_gradients(gradients), wait })
    }

    /// Runs a step like [`run_step`](Self::run_step), but the gradients of tied parameters come from this rank's stages
    /// only.
    #[track_caller]
    #[doc(hidden)]
    pub fn run_passes<M: Module<In: SegmentData>, S: Dims>(
        &self,
        model: &M,
        inputs: &[M::In],
        mut loss: impl FnMut(&M, &M::Out, usize) -> Loss<S>,
    ) -> Result<PipelineStep<S>, ExecutorError> {
        let micro_batches = self.schedule.lowered().micro_batches;
        assert_eq!(
            inputs.len(),
            micro_batches,
            "a step takes one input for each micro-batch of its schedule, on every rank"
        );
        let kinds = kinds_of::<M::In>();
        let inputs: Vec<Vec<Part>> = inputs.iter().map(parts_of).collect();
        let shapes = inputs.iter().map(|input| self.boundary_shapes(&kinds, input));
        let shapes: Vec<Vec<BoundaryShape>> = shapes.collect();
        let parts = self.agree_on_step(&inputs, |message| {
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
            begun: 0,
        };
        let outcome = match &self.times {
            None => self.executor.run_step(&parts, &mut work),
            Some(times) => {
                let device = self.rank.allocator().device();
                let mut timed = TimedStages::new(&mut work, times, device);
                let outcome = self.executor.run_step(&parts, &mut timed);
                timed.finish_step();
                outcome
            }
        };
        let wait = outcome.unwrap_or_else(|error| fail(error));
        Ok(PipelineStep { losses: work.losses, gradients: work.gradients.complete(), wait })
    }

    /// Runs the forward pass of one input, without gradients, and applies `read` to the output of the model. Returns
    /// its result on the ranks of the last stage, `None` on the others. Every rank calls it.
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
        let sent = |message: Message| self.message_parts(&shapes, message);
        if !self.has_evaluated.replace(true) {
            self.executor.agree_on_parts(sent)?;
        }
        let evaluate = || {
            let mut output = None;
            let outcome = self.executor.evaluate(sent, |stage, buffers| {
                let parts = match stage.checked_sub(1) {
                    None => input.clone(),
                    Some(before) => shapes[before].parts_of_buffers(buffers),
                };
                let sent = match self.stages.forward_stage(model, stage, parts) {
                    PartOutput::Boundary(data) => data.parts,
                    PartOutput::Model(result) => {
                        output = Some(result);
                        Vec::new()
                    }
                };
                let boundary = shapes.get(stage);
                let sent =
                    boundary.map_or_else(Vec::new, |boundary| boundary.buffers_of_parts(&sent));
                Ok::<_, CommError>(sent)
            });
            outcome.unwrap_or_else(|error| fail(error));
            output.map(|output| read(&output))
        };
        Ok(self.rank.evaluate(|| self.stages.in_stage(evaluate)))
    }

    /// Runs the forward pass of one input, without gradients, and returns the loss that `loss` computes from the output
    /// of the model, on the last stage. Every rank calls it.
    ///
    /// # Errors
    /// As [`evaluate`](Self::evaluate).
    #[track_caller]
    pub fn evaluate_loss<M: Module<In: SegmentData>, S: Dims>(
        &self,
        model: &M,
        input: &M::In,
        loss: impl FnOnce(&M, &M::Out) -> Loss<S>,
    ) -> Result<Metric<S>, ExecutorError> {
        let metric = self.evaluate(model, input, |output| loss(model, output).metric())?;
        let metric = metric.unwrap_or_else(|| Metric::without_contribution(&self.rank));
        Ok(metric.summed_over(PP))
    }

    /// Returns true if messages are exchanged in [rounds](crate::schedule::Lockstep).
    #[doc(hidden)]
    pub fn is_in_rounds(&self) -> bool {
        self.executor.is_in_rounds()
    }

    /// Returns the lowest world rank with the last stage, whose output is that of the model.
    pub fn first_rank_of_last_stage(&self) -> usize {
        let shape = self.rank.comms().shape();
        let last = self.schedule.lowered().placement.last().copied().unwrap_or_default();
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

    /// Returns the buffers of the messages of a step, on which the ranks agree when the sizes of its inputs are new.
    fn agree_on_step(
        &self,
        inputs: &[Vec<Part>],
        parts: impl Fn(Message) -> Vec<MessagePart>,
    ) -> Result<Rc<MessageParts>, ExecutorError> {
        let extents = inputs.iter().flatten().flat_map(Part::extents);
        let input_sizes: Vec<usize> = extents.map(|extent| extent.local).collect();
        let mut agreed = self.step_parts.borrow_mut();
        if let Some(known) = agreed.as_ref().filter(|known| known.input_sizes == input_sizes) {
            return Ok(Rc::clone(&known.parts));
        }
        let parts = Rc::new(self.executor.agree_on_parts(parts)?);
        *agreed = Some(StepParts { input_sizes, parts: Rc::clone(&parts) });
        Ok(parts)
    }
}
