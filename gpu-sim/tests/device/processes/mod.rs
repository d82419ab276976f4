//! Runs of several processes with a device each, started as by a launcher.
//!
//! Every process is this program, whose environment selects a rank. Devices are simulated, and the collectives library
//! is that of the engine's tests, over TCP. With a GPU, `MESHWRIGHT_TEST_DEVICE=cuda` makes all processes share it,
//! with NCCL between them.

mod environment;
mod failures;
mod job;
mod primitives;
mod rank;
mod settings;
mod training;
mod wire;

use job::Job;

/// The entry point of rank processes, not a test.
#[test]
#[ignore = "a rank of the other tests, which start it"]
fn one_rank() {
    rank::run();
}

#[test]
fn collectives_match_those_between_threads() {
    for (ranks, mesh) in [(2, "pp=2"), (4, "pp=4"), (4, "pp=2,tp=2")] {
        Job::start(ranks, "primitives", mesh, |_, _| {}).succeed();
    }
}
