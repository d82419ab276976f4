//! Results of a call on each rank: a failure is that of all ranks.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::tensor::Rank;
use crate::train::run::exchange_results;
use crate::train::{Error, Result};

/// Returns the result of this rank if no rank has failed. Every rank calls it.
///
/// # Errors
/// The first failure, on all ranks.
pub fn fail_together<T>(rank: &Rank, call: &'static str, own: Result<T>) -> Result<T> {
    let (value, outcome) = match own {
        Ok(value) => (Some(value), Ok(())),
        Err(error) => (None, Err(error)),
    };
    gather_results(rank, call, outcome)?;
    Ok(value.expect("no rank has failed"))
}

/// Returns the values of all ranks, in their order. Every rank calls it.
///
/// # Errors
/// The first failure, on all ranks.
pub fn gather_results<T: Serialize + DeserializeOwned>(
    rank: &Rank,
    call: &'static str,
    own: Result<T>,
) -> Result<Vec<T>> {
    let own = own.map_err(|error| (error.to_string(), error.exit_code()));
    exchange_results(rank, call, &own)?.map_err(|(report, code)| Error::Ranks { report, code })
}
