//! Planning the stages of a model with `#[pipeline_stage]`.

use std::collections::BTreeSet;

use meshwright_core::__internal::declare_first;
use meshwright_core::nn::{
    BuildError, Built, ChainDescription, Model, Module, Sizes, StageDescription, describe_chain,
};
use meshwright_core::tensor::{Rank, SegmentData};

use super::boundary::{dims_without_size, kinds_of};
use super::plan::cut_declared;
use super::{ChainOutline, FieldOutline, StagePlan, StageRequest};

/// Cuts the stages of `M`, the fields with `#[pipeline_stage]`, by `request`. Allocates no memory; every rank gets the
/// same plan.
///
/// # Errors
/// All problems together: what [`build`](meshwright_core::nn::build) finds in the model, a model without stages, a
/// mesh with another number of ranks than the placement, too many stages, a cut that does not fit, and boundaries with
/// a dim that has no size.
pub fn plan_stages<M: Model + Module<In: SegmentData>>(
    rank: &Rank,
    sizes: &Sizes,
    request: &StageRequest<'_>,
) -> Result<StagePlan, BuildError> {
    plan_declared_stages(rank, &declare_first::<M>(rank, sizes)?, sizes, request)
}

/// Cuts the stages of a model that is declared already, as [`plan_stages`] does.
///
/// # Errors
/// As [`plan_stages`].
pub fn plan_declared_stages<M: Model + Module<In: SegmentData>>(
    rank: &Rank,
    declared: &Built<M>,
    sizes: &Sizes,
    request: &StageRequest<'_>,
) -> Result<StagePlan, BuildError> {
    let chain = describe_chain(&declared.model);
    let plan = cut_declared(rank, &outline_chain::<M>(chain.as_ref()), request, Ok(declared));
    let mut problems = match &plan {
        Ok(_) => Vec::new(),
        Err(error) => error.problems.clone(),
    };
    if let Some(chain) = &chain {
        problems.extend(check_boundaries::<M>(chain, plan.as_ref().ok(), sizes));
    }
    plan.ok().filter(|_| problems.is_empty()).ok_or(BuildError { problems })
}

/// Returns the outline of a model's chain, which is empty for a model without stages.
fn outline_chain<M: Model>(chain: Option<&ChainDescription>) -> ChainOutline {
    let description = M::describe();
    let declared = |name: &str| -> Option<StageDescription> {
        description.fields.iter().find(|field| field.name == name)?.stage
    };
    let fields = chain.into_iter().flat_map(|chain| &chain.fields).map(|field| FieldOutline {
        name: field.name.to_owned(),
        layers: field.layers,
        cost: declared(field.name).and_then(|stage| stage.cost),
    });
    let last = description.fields.iter().filter_map(|field| {
        let stage = field.stage.filter(|stage| stage.last)?;
        Some(FieldOutline { name: field.name.to_owned(), layers: None, cost: stage.cost })
    });
    ChainOutline {
        model: description.name.to_owned(),
        fields: fields.collect(),
        last: last.collect(),
    }
}

/// Returns the problems of boundaries, whose shapes must be known on both ranks: the boundaries of `plan`, or without
/// one the boundaries between all fields.
fn check_boundaries<M: Module<In: SegmentData>>(
    chain: &ChainDescription,
    plan: Option<&StagePlan>,
    sizes: &Sizes,
) -> Vec<String> {
    let input = kinds_of::<M::In>();
    let crossing: BTreeSet<usize> = match plan {
        Some(plan) => {
            let inner = 0..plan.stage_count().saturating_sub(1);
            inner.filter_map(|stage| Some(plan.fields_of_stage(stage).last()?.field)).collect()
        }
        None => (0..chain.fields.len().saturating_sub(1)).collect(),
    };
    let problems = crossing.into_iter().flat_map(|index| {
        let field = &chain.fields[index];
        let crosses = format!("`{}`: its output, which crosses to the next pipeline stage, has", field.name);
        let unsized_dims = dims_without_size(&field.output, &input, sizes).into_iter().map(|dim| {
            if dim.is_routed {
                return format!(
                    "{crosses} rows that were routed to experts, and ranks have different numbers of them: end the \
                     stage after `routing.combine(&rows)`"
                );
            }
            let dim = dim.name;
            format!("{crosses} the dim {dim}, which has no size: set it by `Sizes::with({dim}, ..)`")
        });
        unsized_dims.collect::<Vec<_>>()
    });
    problems.collect()
}
