//! The program of a process that was started as a rank.

use std::env;
use std::sync::Arc;

use meshwright::launch::{RankAssignment, StoreOptions};
use meshwright::models::llama::Llama;
use meshwright::train::{Config, Gpus, Machine, Result, Trainer};
use meshwright_cuda::{CallKind, DriverError};
use meshwright_gpu_sim::{SimDriver, on_gpu};

use super::environment::{FAULT, ROLE, WORDS, library, own_place};
use super::primitives;

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

/// Returns a simulated GPU of this process, and the test's library between processes.
fn simulated(config: &Config, place: &RankAssignment) -> Result<Gpus> {
    let driver = Arc::new(SimDriver::new(place.rank as u64));
    if let Ok(launches) = env::var(FAULT) {
        let reason = "an illegal memory access was encountered".to_owned();
        let error = DriverError::Call { call: "cuLaunchKernel", reason };
        let launches = launches.parse().expect("a number of launches");
        driver.device().fail(CallKind::Launch, launches, error);
    }
    let library = Arc::new(library(place.rank, &driver));
    Gpus::in_process(&config.mesh, place, &StoreOptions::default(), driver, library)
}
