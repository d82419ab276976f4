//! The TCP store of a run whose ranks are processes.

use crate::launch::{RankAssignment, Store, StoreError, StoreOptions, TokenSource};
use crate::os::exit_code::REFUSED;
use crate::train::config::Config;
use crate::train::console::print_line;
use crate::train::{Error, Result};

/// Returns the settings of the store of this process, with the token of its environment.
///
/// # Errors
/// A token that can be guessed, or that others can read.
pub fn store_options(config: &Config, assignment: &RankAssignment) -> Result<StoreOptions> {
    let token = TokenSource::from_environment(assignment).map_err(of_store)?;
    let (timeout, heartbeat_limit) = (config.comm_timeout.0, config.heartbeat_limit.0);
    Ok(StoreOptions { timeout, heartbeat_limit, token })
}

/// Opens the store of this process, and prints its warnings.
///
/// # Errors
/// A failed rendezvous.
pub fn open_store(assignment: &RankAssignment, options: &StoreOptions) -> Result<Store> {
    let store = Store::open(assignment, options).map_err(of_store)?;
    store.warnings().iter().for_each(|line| print_line(&format!("warning: {line}")));
    Ok(store)
}

/// Returns the error of a run because of an error of its store.
pub fn of_store(error: StoreError) -> Error {
    if error.exit_code() == REFUSED {
        return Error::Input(error.to_string());
    }
    Error::Rendezvous(error.to_string())
}
