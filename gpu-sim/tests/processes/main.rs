//! Runs of several processes, each with a device of its own, started as a launcher starts them.
//!
//! Every process is this program, told by its environment to be a rank. Devices are simulated, and the library between
//! them is that of the tests of the engine, reached over TCP. On a host with a GPU, `MESHWRIGHT_TEST_DEVICE=cuda` lets all
//! processes share it, with the library itself between them.

mod failures;
#[allow(dead_code, reason = "not all of it is needed here")]
#[path = "../../../runtime/tests/nccl/hub.rs"]
mod hub;
#[path = "../support/in_order.rs"]
mod in_order;
mod job;
#[allow(dead_code, reason = "not all of it is needed here")]
#[path = "../../../runtime/tests/nccl/port.rs"]
mod port;
mod primitives;
mod rank;
#[allow(dead_code, reason = "not all of it is needed here")]
#[path = "../../../runtime/tests/device_collectives/scenario.rs"]
mod scenario;
mod settings;
mod training;
mod wire;

/// Not a test, but a process of the others.
#[test]
#[ignore = "a rank of the other tests, which start it"]
fn one_rank() {
    rank::run();
}
