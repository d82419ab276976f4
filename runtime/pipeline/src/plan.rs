//! The plan of a pipeline: which stage runs which fields of the chain, on which rank, and which units it owns.

use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use meshwright_core::__internal::declare_first;
use meshwright_core::layout::AxisId;
use meshwright_core::nn::{Build, BuildError, Built, Sizes};
use meshwright_core::tensor::{Rank, UnitOwners};

use super::chain::ChainPlace;
use super::cut::ChainCosts;
use super::{ChainOutline, StageCut};

/// Plan of a pipeline: the cut of a model's chain into stages, and their placement on ranks. The same on every rank.
#[derive(Debug, Clone, PartialEq)]
pub struct StagePlan {
    chain: ChainOutline,
    /// The rank of each stage, as a position along `pp`.
    placement: Vec<usize>,
    /// Number of stage-cut points of each stage; 0 for a first or last stage with only the fields at its end of the
    /// chain.
    counts: Vec<usize>,
    /// Cost of each stage, in any unit.
    costs: Vec<f64>,
}

/// The part of a field of the chain that a stage runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageField {
    /// Index of the field in [`ChainOutline::fields`].
    pub field: usize,
    /// The layers of a stack; `0..1` of another field.
    pub layers: Range<usize>,
}

/// Request for a [`StagePlan`].
#[derive(Debug, Clone, Copy)]
pub struct StageRequest<'a> {
    /// The rank of each stage, as a position along `pp`: [`Schedule::placement`](crate::schedule::Schedule::placement).
    pub placement: &'a [usize],
    /// The cut of the model into stages.
    pub cut: &'a StageCut,
    /// Length of the sequences, for the FLOPs of attention.
    pub seq: usize,
}

/// Cuts `M`, whose chain is `chain`, into the stages of `request`. Allocates no memory.
///
/// # Errors
/// All problems together: what [`build`](meshwright_core::nn::build) finds in the model, a mesh with another number
/// of ranks than the placement, too many stages, and a cut that does not fit.
pub fn cut_stages<M: Build>(
    rank: &Rank,
    sizes: &Sizes,
    chain: &ChainOutline,
    request: &StageRequest<'_>,
) -> Result<StagePlan, BuildError> {
    cut_declared(rank, chain, request, declare_first::<M>(rank, sizes).as_ref())
}

/// Cuts a model that is declared already, as [`cut_stages`] does.
pub(super) fn cut_declared<M>(
    rank: &Rank,
    chain: &ChainOutline,
    request: &StageRequest<'_>,
    declared: Result<&Built<M>, &BuildError>,
) -> Result<StagePlan, BuildError> {
    let flops = |path: &str| match declared {
        Ok(built) => built.flops_per_token(request.seq, |field| is_within(field, path)),
        Err(_) => 0.0,
    };
    let mut problems = check_placement(chain, request.placement, rank.degree(AxisId::Pp));
    problems.extend(check_costs(chain));
    let mut plan = None;
    if problems.is_empty() {
        let costs = ChainCosts::new(chain, &flops);
        match request.cut.counts(chain, request.placement.len(), &costs) {
            Ok(counts) => {
                let of_stages = costs.of_stages(&counts);
                plan = Some(StagePlan::of_counts(chain, request.placement, counts, of_stages));
            }
            Err(found) => problems.extend(found),
        }
    }
    match (declared, &plan) {
        (Err(error), _) => problems.extend(error.problems.iter().cloned()),
        (Ok(built), Some(plan)) => {
            problems.extend(plan.unit_owners(built).err().unwrap_or_default())
        }
        (Ok(_), None) => {}
    }
    plan.filter(|_| problems.is_empty()).ok_or(BuildError { problems })
}

impl StagePlan {
    /// Creates the plan of stages with these numbers of stage-cut points and costs.
    pub(super) fn of_counts(
        chain: &ChainOutline,
        placement: &[usize],
        counts: Vec<usize>,
        costs: Vec<f64>,
    ) -> StagePlan {
        StagePlan { chain: chain.clone(), placement: placement.to_vec(), counts, costs }
    }

    /// Returns the number of stages.
    pub fn stage_count(&self) -> usize {
        self.counts.len()
    }

    /// Returns the number of ranks along `pp`.
    pub fn rank_count(&self) -> usize {
        self.placement.iter().max().map_or(0, |rank| rank + 1)
    }

    /// Returns the chain that is cut.
    pub fn chain(&self) -> &ChainOutline {
        &self.chain
    }

    /// Returns the rank of each stage, as a position along `pp`.
    pub fn placement(&self) -> &[usize] {
        &self.placement
    }

    /// Returns the number of stage-cut points of each stage: layers, or fields of a chain without stacks. The first
    /// stage may have none, if a field comes before the stacks, and the last one, if a field comes after them.
    pub fn counts(&self) -> &[usize] {
        &self.counts
    }

    /// Returns the cost of each stage: its FLOPs, or as far as they are declared, its cost in layers. In any unit.
    pub fn costs(&self) -> &[f64] {
        &self.costs
    }

    /// Returns the stages of the rank at a position along `pp`, in ascending order.
    pub fn stages_of_rank(&self, rank: usize) -> Vec<usize> {
        (0..self.stage_count()).filter(|stage| self.placement[*stage] == rank).collect()
    }

    /// Returns the stage-cut points of a stage.
    pub fn points_of_stage(&self, stage: usize) -> Range<usize> {
        let start = self.counts[..stage].iter().sum();
        start..start + self.counts[stage]
    }

    /// Returns the fields of the chain that a stage runs, in order.
    pub fn fields_of_stage(&self, stage: usize) -> Vec<StageField> {
        let points = self.points_of_stage(stage);
        let layers_of_field = |(field, outline): (usize, &super::FieldOutline)| {
            let place = self.chain.place_of_field(field);
            let layers = match (place, &outline.layers) {
                (ChainPlace::Point(first), Some(layers)) => {
                    let start = points.start.clamp(first, first + layers.count);
                    let end = points.end.clamp(first, first + layers.count);
                    start - first..end - first
                }
                _ => 0..usize::from(self.stage_of_place(place) == Some(stage)),
            };
            (!layers.is_empty()).then_some(StageField { field, layers })
        };
        self.chain.fields.iter().enumerate().filter_map(layers_of_field).collect()
    }

    /// Returns the stage of the field or parameter at `path`; `None` if it is not part of the chain.
    pub fn stage_of_path(&self, path: &str) -> Option<usize> {
        self.stage_of_place(self.chain.place_of_path(path)?)
    }

    fn stage_of_place(&self, place: ChainPlace) -> Option<usize> {
        let mut stages = 0..self.stage_count();
        match place {
            ChainPlace::Front => stages.next(),
            ChainPlace::Point(point) => {
                stages.find(|stage| self.points_of_stage(*stage).contains(&point))
            }
            ChainPlace::Back => stages.next_back(),
        }
    }

    /// Returns the number of layers of a stage; 0 if the chain has no stacks.
    pub fn layers_of_stage(&self, stage: usize) -> usize {
        if self.cuts_layers() { self.counts[stage] } else { 0 }
    }

    /// Returns true if the chain has stacks, whose layers the stages consist of, and false if they consist of fields.
    pub fn cuts_layers(&self) -> bool {
        self.chain.has_stack()
    }

    /// Returns the owners of each declared unit, in the order of `built.units`: the stages of all uses of its
    /// parameters.
    ///
    /// # Errors
    /// Fields with parameters that belong to no stage.
    pub(super) fn unit_owners<M>(&self, built: &Built<M>) -> Result<Vec<UnitOwners>, Vec<String>> {
        let mut stages = vec![BTreeSet::new(); built.units.len()];
        let mut without_stage = BTreeSet::new();
        for (path, param) in built.param_uses() {
            let unit = built.units.iter().position(|unit| Rc::ptr_eq(unit, param.unit()));
            match (self.stage_of_path(path), unit) {
                (Some(stage), Some(unit)) => drop(stages[unit].insert(stage)),
                (None, _) => drop(without_stage.insert(path.split('.').next().unwrap_or(path))),
                // A unit without elements.
                (Some(_), None) => {}
            }
        }
        if without_stage.is_empty() {
            return Ok(stages
                .iter()
                .map(|stages| UnitOwners::new(stages, &self.placement))
                .collect());
        }
        let model = &self.chain.model;
        let problem =
            |field| format!("`{field}`: does not belong to a pipeline stage of `{model}`");
        Err(without_stage.into_iter().map(problem).collect())
    }
}

/// Returns the problems of a placement of stages on the ranks of the mesh.
fn check_placement(chain: &ChainOutline, placement: &[usize], ranks: usize) -> Vec<String> {
    if chain.fields.is_empty() {
        let flag = if ranks == 1 { "--stage-times" } else { &format!("--mesh: pp={ranks}") };
        return vec![format!(
            "{flag} needs a model with stages: put `#[pipeline_stage]` on the fields of `{}`",
            chain.model
        )];
    }
    let mut problems = Vec::new();
    let has_stages = |rank: usize| placement.contains(&rank);
    if !(0..ranks).all(has_stages) || placement.iter().any(|rank| *rank >= ranks) {
        let used: BTreeSet<_> = placement.iter().collect();
        let used: Vec<String> = used.into_iter().map(usize::to_string).collect();
        problems.push(format!(
            "--mesh: pp={ranks} needs a schedule with stages on each of {ranks} ranks, but it has them on the ranks {}",
            used.join(", ")
        ));
    }
    let stages = placement.len();
    if stages > chain.most_stages() {
        let chunks = match stages / ranks {
            chunks if chunks > 1 && stages.is_multiple_of(ranks) => {
                format!(" x --virtual-stages {chunks}")
            }
            _ => String::new(),
        };
        problems.push(format!(
            "--mesh: pp={ranks}{chunks} makes {stages} stages, but {}, and each stage needs a layer{}",
            chain.describe_points(),
            chain.describe_exceptions()
        ));
    }
    problems
}

/// Returns the problems of declared costs.
fn check_costs(chain: &ChainOutline) -> Vec<String> {
    let fields = chain.fields.iter().chain(&chain.last);
    let declared = fields.filter_map(|field| Some((&field.name, field.cost?)));
    let wrong = declared.filter(|(_, cost)| !(cost.is_finite() && *cost > 0.0));
    let problem = |(name, cost): (&String, f64)| {
        format!(
            "field `{name}`: `cost = {cost}` is not a cost: a number above 0, where a layer of the first `Stack` is 1"
        )
    };
    wrong.map(problem).collect()
}

/// Returns true if a path is that of a field, or inside of it.
fn is_within(path: &str, field: &str) -> bool {
    path.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
