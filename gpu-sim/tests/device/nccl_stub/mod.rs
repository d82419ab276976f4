//! The collectives library of the NCCL engine's tests, over streams of a simulated device.

pub mod in_order;

#[allow(dead_code, reason = "also used by the tests of the engine")]
#[path = "../../../../runtime/tests/integration/nccl/hub.rs"]
pub mod hub;
#[allow(dead_code, reason = "also used by the tests of the engine")]
#[path = "../../../../runtime/tests/integration/nccl/port.rs"]
pub mod port;
