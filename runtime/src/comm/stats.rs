//! Counters of one seat.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// What one seat in one group has done since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommStats {
    /// Payload bytes sent by this rank, counted as the bandwidth-optimal ring algorithm would send them, so that
    /// the number does not depend on the engine. With `n` bytes of the whole tensor and `p` members:
    ///
    /// | operation | bytes per rank |
    /// |---|---|
    /// | all_reduce | `2 n (p-1) / p` |
    /// | all_gather, reduce_scatter, broadcast, reduce | `n (p-1) / p` |
    /// | all_to_all | what is sent to other members |
    /// | scatter | at the root, what other members receive; elsewhere 0 |
    /// | gather | at the root 0; elsewhere the own part |
    /// | send | `n`; recv and barrier 0 |
    ///
    /// Divisions round down.
    pub bytes: u64,
    /// Calls made, asynchronous ones included.
    pub calls: u64,
    /// Time in which the rank's own thread stood still for this group: waiting for other members in synchronous
    /// calls, for messages, and in [`Pending::wait`](super::Pending::wait).
    pub blocked: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    bytes: AtomicU64,
    calls: AtomicU64,
    blocked_nanos: AtomicU64,
}

impl Counters {
    pub fn count(&self, bytes: usize) {
        self.calls.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub fn blocked_since(&self, start: Instant) {
        self.blocked_nanos.fetch_add(start.elapsed().as_nanos() as u64, Relaxed);
    }

    pub fn read(&self) -> CommStats {
        CommStats {
            bytes: self.bytes.load(Relaxed),
            calls: self.calls.load(Relaxed),
            blocked: Duration::from_nanos(self.blocked_nanos.load(Relaxed)),
        }
    }
}
