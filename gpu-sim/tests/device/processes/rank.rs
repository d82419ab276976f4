//! The program of a process that was started as a rank.

use std::env;
use std::sync::Arc;

use meshwright::backend::cuda::DriverError;
use meshwright::launch::RankAssignment;
use meshwright::train::{Config, Error, Gpus, Machine, Result, Trainer};
use meshwright_examples::llama::Llama;
use meshwright_gpu_sim::{Kind, SimDriver, on_gpu};

use super::primitives;
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

/// Runs the role from the environment, and exits as a training program does.
pub fn run() {
    let words = env::var(WORDS).expect("the words of a rank");
    match env::var(ROLE).as_deref() {
        Ok("train") => train(&words).unwrap_or_else(|error| error.exit()),
        Ok("primitives") => primitives::run(&words),
        role => panic!("{role:?} is nothing that a rank does"),
    }
}

fn train(words: &str) -> Result<()> {
    let config = Config::parse(words.split_whitespace())?;
    if on_gpu() {
        return Trainer::<Llama>::new(config)?.run();
    }
    let place = own_place()?;
    let machine: Box<dyn Machine> = Box::new(simulated(&config, &place)?);
    Trainer::<Llama>::on(config, machine)?.run()
}

pub fn own_place() -> Result<RankAssignment> {
    let place =
        RankAssignment::from_environment().map_err(|error| Error::Input(error.to_string()))?;
    Ok(place.expect("the variables of a launcher"))
}

/// Returns a simulated GPU of this process, and the test's library between processes.
fn simulated(config: &Config, place: &RankAssignment) -> Result<Gpus> {
    let driver = Arc::new(SimDriver::new(place.rank as u64));
    if let Ok(launches) = env::var(FAULT) {
        let reason = "an illegal memory access was encountered".to_owned();
        let error = DriverError::Call { call: "cuLaunchKernel", reason };
        let launches = launches.parse().expect("a number of launches");
        driver.device().fail(Kind::Launch, launches, error);
    }
    let library = Arc::new(library(place.rank, &driver));
    Gpus::in_process(&config.mesh, place, driver, library)
}

/// Returns the test's library for the rank with this device.
pub fn library(rank: usize, driver: &Arc<SimDriver>) -> Port {
    let address = env::var(HUB).expect("the address of the library");
    let wire = Wire { address: address.parse().expect("an address") };
    Port::on(Arc::new(wire), rank, InOrder::new(Arc::clone(driver)))
}
