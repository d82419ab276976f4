//! The TCP store of a run whose ranks are processes.

use crate::comm::{Peers, RankExit};
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
    let report_wait = |line: &str| print_line(&format!("{line} (--comm-timeout)"));
    Ok(StoreOptions { timeout, heartbeat_limit, token, report_wait })
}

/// Opens the store of this process, prints its warnings, and waits for all ranks.
///
/// # Errors
/// A failed rendezvous. The ranks that have come receive it, too.
pub fn open_store(assignment: &RankAssignment, options: &StoreOptions) -> Result<Store> {
    let store = Store::open(assignment, options).map_err(of_store)?;
    store.warnings().iter().for_each(|line| print_line(&format!("warning: {line}")));
    store.await_ranks().map_err(|error| {
        let (code, text) = (error.exit_code(), error.to_string().into());
        store.announce_exit(&RankExit::Failed { error: text, code });
        of_store(error)
    })?;
    Ok(store)
}

/// Returns the error of a run because of an error of its store.
pub fn of_store(error: StoreError) -> Error {
    if error.exit_code() == REFUSED {
        return Error::Input(error.to_string());
    }
    Error::Rendezvous(error.to_string())
}
