//! The stages of a model that one rank computes.

use std::collections::HashMap;
use std::rc::Rc;

use crate::schedule::{Compute, Schedule, Work};
use meshwright_core::__internal::data_of_parts;
use meshwright_core::__internal::{StageAction, StageActionKind};
use meshwright_core::layout::{AxisId, AxisSet};
use meshwright_core::nn::{
    Built, ChainPart, Module, PartInput, PartOutput, StageData, describe_chain, forward_part,
};
use meshwright_core::tensor::{Part, PartKind, Rank, SegmentData, Unit};

use super::StagePlan;

pub(super) const PP: AxisSet = AxisSet::of(AxisId::Pp);

/// The parts of a model's chain that the stages run, and the FSDP units of this rank.
pub(super) struct RankStages {
    rank: Rank,
    /// The part of the chain that each stage runs.
    parts: Vec<ChainPart>,
    /// Kinds of the parts that cross the boundary after each stage but the last.
    boundaries: Vec<Vec<PartKind>>,
    /// Units whose gradients are complete after the weight gradients of a stage for a micro-batch.
    completed: HashMap<(usize, usize), Vec<Rc<Unit>>>,
    /// The computations of a step, in order.
    actions: Vec<StageAction>,
}

impl RankStages {
    /// Creates the stages of a rank.
    ///
    /// # Panics
    /// If the model has no pipeline stages, or the schedule places other stages than the plan.
    pub fn new<M: Module>(
        rank: &Rank,
        built: &Built<M>,
        plan: &StagePlan,
        schedule: &Schedule,
    ) -> RankStages {
        assert_eq!(schedule.placement, plan.placement(), "the stages of the schedule and the plan");
        let chain = describe_chain(&built.model).expect("a plan is of a model with stages");
        let fields = &chain.fields;
        let start = |field: usize| fields[..field].iter().map(|f| f.n_elements()).sum::<usize>();
        let elements = |stage: usize| {
            let of_stage = plan.fields_of_stage(stage);
            let (first, last) = (of_stage.first(), of_stage.last());
            let (first, last) = first.zip(last).expect("each stage has a field");
            start(first.field) + first.layers.start..start(last.field) + last.layers.end
        };
        let parts = (0..plan.stage_count()).map(|stage| chain.part(elements(stage))).collect();
        let boundary = |stage: usize| {
            let of_stage = plan.fields_of_stage(stage);
            let last = of_stage.last().expect("each stage has a field");
            fields[last.field].output.clone()
        };
        let boundaries = (0..plan.stage_count() - 1).map(boundary).collect();
        let rank = rank.clone();
        let completed = completed_units(&built.units, schedule, rank.position(PP));
        let computes = schedule.ranks[rank.position(PP)].iter().flat_map(|next| next.computes());
        let actions = computes.map(stage_action).collect();
        RankStages { rank, parts, boundaries, completed, actions }
    }

    /// Begins the computation with this index in the step of this rank, which determines the units that FSDP
    /// prefetches.
    pub fn begin_action(&self, index: usize) {
        let later = self.actions[index + 1..].iter().copied();
        self.rank.begin_stage_action(self.actions[index], later);
    }

    /// Ends a computation.
    pub fn end_action(&self) {
        self.rank.end_stage_action();
    }

    /// Runs `body`, a computation of a stage of this rank: the values that it makes belong to the stage.
    pub fn in_stage<T>(&self, body: impl FnOnce() -> T) -> T {
        self.rank.in_stage(body)
    }

    /// Returns the kinds of the parts that cross the boundary after each stage but the last.
    pub fn boundaries(&self) -> &[Vec<PartKind>] {
        &self.boundaries
    }

    /// Computes the output of a stage.
    pub fn forward_stage<M: Module<In: SegmentData>>(
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
        forward_part(model, &self.parts[stage], input)
    }

    /// Returns the units whose gradients are complete after the weight gradients of a stage for a micro-batch.
    pub fn completed_units(&self, stage: usize, micro_batch: usize) -> &[Rc<Unit>] {
        self.completed.get(&(stage, micro_batch)).map_or(&[], Vec::as_slice)
    }

    /// Returns the rank of an input, which refers to its micro-batch and its documents.
    pub fn rank_of_input(&self, input: &[Part]) -> Rank {
        Rank::of_operands(input.iter().map(Part::rank)).unwrap_or_else(|| self.rank.clone())
    }
}

fn stage_action(compute: &Compute) -> StageAction {
    let kind = match compute.work {
        Work::Forward => StageActionKind::Forward,
        Work::Backward | Work::BackwardInput => StageActionKind::Backward,
        Work::BackwardWeight => StageActionKind::Weights,
    };
    StageAction { stage: compute.stage, kind }
}

/// Returns the units that are complete after each computation of weight gradients of the rank at `position`: those
/// whose last weight gradients it computes.
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
