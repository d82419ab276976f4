//! The environment of a process that is started as a rank: how the test passes it its role.

use std::env;
use std::sync::Arc;

use meshwright::launch::RankAssignment;
use meshwright::train::{Error, Result};
use meshwright_gpu_sim::SimDriver;

use super::wire::Wire;
use crate::nccl_stub::in_order::InOrder;
use crate::nccl_stub::port::Port;

/// Name of the test that runs as a rank.
pub const TEST: &str = "processes::one_rank";
/// Role of the rank: `train`, or `primitives`.
pub const ROLE: &str = "MESHWRIGHT_TEST_ROLE";
/// Command line of the rank.
pub const WORDS: &str = "MESHWRIGHT_TEST_WORDS";
/// Address of the test's collectives library.
pub const HUB: &str = "MESHWRIGHT_TEST_HUB";
/// Number of kernel launches after which the device of this rank fails, if it does.
pub const FAULT: &str = "MESHWRIGHT_TEST_FAULT";

/// Returns the place of this process among the ranks.
pub fn own_place() -> Result<RankAssignment> {
    let place =
        RankAssignment::from_environment().map_err(|error| Error::Input(error.to_string()))?;
    Ok(place.expect("the variables of a launcher"))
}

/// Returns the test's library for the rank with this device.
pub fn library(rank: usize, driver: &Arc<SimDriver>) -> Port {
    let address = env::var(HUB).expect("the address of the library");
    let wire = Wire { address: address.parse().expect("an address") };
    Port::on(Arc::new(wire), rank, InOrder::new(Arc::clone(driver)))
}
