//! Building the stages of a rank.

use std::panic::Location;

use meshwright_core::__internal::declare_again;
use meshwright_core::layout::{AxisId, AxisSet};
use meshwright_core::nn::{Build, BuildError, Built, Sizes};
use meshwright_core::tensor::Rank;

use super::StagePlan;

/// Builds the stages of `M` that `plan` places on this rank: declares every parameter and checks every size of the
/// whole model, then allocates and initializes the FSDP units that this rank owns. Every rank calls it.
///
/// [`Built::units`] are the owned units, and [`Built::params`] all parameters of the model. Initial values are the same
/// to the bit as in the whole model. To read or write a parameter of another stage is a fault of the calling code, and
/// panics: see [`ParamRef::is_owned`](meshwright_core::tensor::ParamRef::is_owned).
///
/// # Errors
/// As [`build`](meshwright_core::nn::build); also a plan for another number of ranks or of another model.
#[track_caller]
pub fn build_stages<M: Build>(
    rank: &Rank,
    sizes: &Sizes,
    plan: &StagePlan,
) -> Result<Built<M>, BuildError> {
    let mut built = declare_again::<M>(rank, sizes)?;
    let ranks = rank.degree(AxisId::Pp);
    if plan.rank_count() != ranks {
        let problem = format!("--mesh: pp={ranks}, but the plan is for pp={}", plan.rank_count());
        return Err(BuildError { problems: vec![problem] });
    }
    let owners = plan.unit_owners(&built).map_err(|problems| BuildError { problems })?;
    for (unit, owners) in built.units.iter().zip(owners) {
        unit.set_owners(owners);
    }
    rank.note_use_of(AxisSet::of(AxisId::Pp));
    let name = "the pipeline stages of a model";
    rank.declared_values().note_setting(name, Location::caller(), || format!("{plan:?}"));
    built.allocate_model(rank, sizes);
    Ok(built)
}
