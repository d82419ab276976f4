//! Observers of calls.

use std::time::Duration;

use meshwright_mesh::AxisSet;

use super::call::Call;

/// An observer of the calls of a rank.
pub trait CallObserver: Send + Sync {
    /// Observes a call that is issued, and returns its number. `round` is the number of the
    /// [exchange](crate::Communicator::exchange) that it is part of, if the engine [groups
    /// messages](crate::ProcessGroup::groups_messages).
    fn call_issued(&self, call: &Call, round: Option<u32>) -> usize;

    /// Observes that the rank waits for an asynchronous call.
    fn call_awaited(&self, number: usize);

    /// Observes that a blocking call has returned. Kernels since it was issued belong to the engine.
    fn call_returned(&self) {}

    /// Observes the duration of a transfer, on any thread: from the arrival of the last member until this member is
    /// done.
    fn call_transferred(&self, _transfer: &CallTransfer, _duration: Duration) {}
}

/// The transfer of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallTransfer {
    /// Name of the operation, such as `all_reduce`.
    pub op: &'static str,
    /// Axes of the process group.
    pub axes: AxisSet,
    /// Payload bytes that this rank has sent, or received by a receive.
    pub bytes: usize,
}
