//! Parameters that are no longer finite: an update can make them so after its loss and gradient norm were fine.

use crate::backend::View;
use crate::comm::{CommError, Site};
use crate::tensor::{ParamRef, Rank, UnitSlice};

/// Returns true if this rank updates the parameter: frozen ones do not change.
fn is_checked(param: &ParamRef) -> bool {
    param.is_owned() && !param.is_frozen()
}

/// Returns a parameter with an element that is infinite or NaN, the same one on all ranks. Every rank calls it. The
/// exchange does not count as communication of a step.
pub fn find_infinite_param<'a>(
    rank: &Rank,
    params: &'a [ParamRef],
) -> Result<Option<&'a ParamRef>, CommError> {
    let owned: Vec<Option<UnitSlice<'_>>> =
        params.iter().map(|param| is_checked(param).then(|| param.owned_values())).collect();
    let backend = rank.backend();
    let views: Vec<View<'_>> = owned.iter().flatten().map(|values| values.view()).collect();
    let mut bad = [f64::from(u8::from(!backend.sum_squares_of(&views).is_finite()))];
    let (world, site) = (rank.comms().uncounted_world(), Site::new("check of parameters"));
    world.all_reduce_f64(&site, &mut bad)?;
    if bad[0] == 0.0 {
        return Ok(None);
    }
    let is_bad = |values: &Option<UnitSlice<'_>>| {
        values.as_ref().is_some_and(|values| !backend.sum_squares(values.view()).is_finite())
    };
    let mut bad: Vec<f64> =
        owned.iter().map(|values| f64::from(u8::from(is_bad(values)))).collect();
    world.all_reduce_f64(&site, &mut bad)?;
    Ok(params.iter().zip(bad).find(|(_, bad)| *bad > 0.0).map(|(param, _)| param))
}
