//! Training steps and evaluations of a model whose stages are on several ranks.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::comm::CommError;
use crate::layout::{AxisId, AxisSet, Dims};
use crate::nn::{
    Built, ChainPart, Module, PartInput, PartOutput, Sizes, StageData, describe_chain, forward_part,
};
use crate::schedule::{Compute, Message, Schedule};
use crate::tensor::{
    Gradients, Loss, Metric, Part, PartKind, Pending, Rank, SegmentData, Unit, data_of_parts, fail,
    parts_of,
};

use super::boundary::{BoundaryShape, boundary_of, kinds_of};
use super::model_stages::ModelStages;
use super::{
    ExecutorError, MessagePart, MessageWait, PipelineExecutor, StagePlan, sum_tied_gradients,
};

pub(super) const PP: AxisSet = AxisSet::of(AxisId::Pp);

/// The stages of a model on this rank, and the schedule that runs them.
pub struct Pipeline {
    rank: Rank,
    sizes: Sizes,
    schedule: Schedule,
    /// The part of the chain that each stage runs.
    stages: Vec<ChainPart>,
    /// Kinds of the parts that cross the boundary after each stage but the last.
    boundaries: Vec<Vec<PartKind>>,
    /// Units whose gradients are complete after the weight gradients of a stage for a micro-batch.
    completed: HashMap<(usize, usize), Vec<Rc<Unit>>>,
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
        assert_eq!(schedule.placement, plan.placement(), "the stages of the schedule and the plan");
        let chain = describe_chain(&built.model).expect("a plan is of a model with stages");
        let fields = &chain.fields;
        let start = |field: usize| fields[..field].iter().map(|f| f.n_elements()).sum::<usize>();
        let elements = |stage: usize| {
            let links = plan.links_of_stage(stage);
            let (first, last) = (links.first(), links.last());
            let (first, last) = first.zip(last).expect("each stage has a field");
            start(first.link) + first.layers.start..start(last.link) + last.layers.end
        };
        let stages = (0..plan.stage_count()).map(|stage| chain.part(elements(stage))).collect();
        let boundary = |stage: usize| {
            let links = plan.links_of_stage(stage);
            let last = links.last().expect("each stage has a field");
            fields[last.link].output.clone()
        };
        let boundaries = (0..plan.stage_count() - 1).map(boundary).collect();
        let position = rank.position(PP);
        Pipeline {
            rank: rank.clone(),
            sizes: sizes.clone(),
            schedule: schedule.clone(),
            stages,
            boundaries,
            completed: completed_units(&built.units, schedule, position),
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
            pipeline: self,
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
        let rank = self.rank_of_input(&input);
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
                let sent = match self.forward_stage(model, stage, parts) {
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

    /// Computes the output of a stage.
    pub(super) fn forward_stage<M: Module<In: SegmentData>>(
        &self,
        model: &M,
        stage: usize,
        input: Vec<Part>,
    ) -> PartOutput<M::Out> {
        let model_input: M::In;
        let input = if stage == 0 {
            model_input = data_of_parts(input);
            PartInput::Model(&model_input)
        } else {
            PartInput::Boundary(StageData { parts: input })
        };
        forward_part(model, &self.stages[stage], input)
    }

    /// Returns the units whose gradients are complete after the weight gradients of a stage for a micro-batch.
    pub(super) fn completed_units(&self, stage: usize, micro_batch: usize) -> &[Rc<Unit>] {
        self.completed.get(&(stage, micro_batch)).map_or(&[], Vec::as_slice)
    }

    /// Returns the rank of an input, which refers to its micro-batch.
    pub(super) fn rank_of_input(&self, input: &[Part]) -> Rank {
        input.first().map_or(&self.rank, Part::rank).clone()
    }

    /// Returns the shape of the boundary after each stage but the last, for an input of the model.
    fn boundary_shapes(&self, input_kinds: &[PartKind], input: &[Part]) -> Vec<BoundaryShape> {
        let rank = self.rank_of_input(input);
        let shape = |kinds: &Vec<PartKind>| {
            BoundaryShape::new(&rank, kinds, (input_kinds, input), &self.sizes)
        };
        self.boundaries.iter().map(shape).collect()
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

/// Returns the units that are complete after each computation of weight gradients of the rank at `position`: those whose
/// last weight gradients it computes.
fn completed_units(
    units: &[Rc<Unit>],
    schedule: &Schedule,
    position: usize,
) -> HashMap<(usize, usize), Vec<Rc<Unit>>> {
    let actions = schedule.ranks[position].iter().flat_map(|action| action.computes());
    let weights: Vec<&Compute> =
        actions.filter(|compute| compute.work.gives_weight_gradients()).collect();
    let mut completed: HashMap<(usize, usize), Vec<Rc<Unit>>> = HashMap::new();
    for unit in units {
        let owners = unit.owners().expect("the stages of a model have owners");
        let is_of_unit = |compute: &&&Compute| owners.stages().contains(&compute.stage);
        let last = weights.iter().rev().find(is_of_unit);
        let last = last.expect("a verified schedule computes each stage");
        completed.entry((last.stage, last.micro_batch)).or_default().push(Rc::clone(unit));
    }
    completed
}
