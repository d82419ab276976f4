//! What one seat has done: bytes, calls and time.

use std::ops::{AddAssign, Sub};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

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
    /// Where time went.
    pub times: CommTimes,
}

/// Time that communication took, and how much of it the rank's own work hid.
///
/// The rank's **own thread** is the one that computes. It is *in communication* while it is inside a synchronous
/// collective, `send`, `recv` or [`Pending::wait`](super::Pending::wait) of any of its groups, and otherwise at its own
/// work. A collective is a **transfer** from the moment all members have arrived at it until this member is through: to
/// wait for a member that is late is no transfer.
///
/// With asynchronous collectives alone, in one group, `transfer <= hidden + exposed`. Whoever wants to know how well a
/// group's communication is hidden divides `hidden` by `transfer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommTimes {
    /// Length of all transfers, synchronous and asynchronous ones.
    pub transfer: Duration,
    /// The part of asynchronous transfers during which the own thread was at its own work: the communication that cost
    /// it nothing. A transfer that only ran beside a wait for another group is not hidden.
    pub hidden: Duration,
    /// Time the own thread was in communication of this group: transfers that it took part in or waited for, and waiting
    /// for members that were late.
    pub exposed: Duration,
    /// The part of `exposed` in which the own thread stood still, instead of moving and adding up data itself.
    pub blocked: Duration,
}

impl CommTimes {
    fn combine(self, other: CommTimes, f: impl Fn(Duration, Duration) -> Duration) -> CommTimes {
        CommTimes {
            transfer: f(self.transfer, other.transfer),
            hidden: f(self.hidden, other.hidden),
            exposed: f(self.exposed, other.exposed),
            blocked: f(self.blocked, other.blocked),
        }
    }
}

/// The times of two groups, or ranks, together.
impl AddAssign for CommTimes {
    fn add_assign(&mut self, other: CommTimes) {
        *self = self.combine(other, |a, b| a + b);
    }
}

/// The times since an earlier reading.
impl Sub for CommTimes {
    type Output = CommTimes;
    fn sub(self, earlier: CommTimes) -> CommTimes {
        self.combine(earlier, Duration::saturating_sub)
    }
}

/// The counters behind [`CommStats`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub bytes: AtomicU64,
    pub calls: AtomicU64,
    pub transfer: Nanos,
    pub hidden: Nanos,
    pub exposed: Nanos,
    pub blocked: Nanos,
}

impl Counters {
    pub fn read(&self) -> CommStats {
        CommStats {
            bytes: self.bytes.load(Relaxed),
            calls: self.calls.load(Relaxed),
            times: CommTimes {
                transfer: self.transfer.read(),
                hidden: self.hidden.read(),
                exposed: self.exposed.read(),
                blocked: self.blocked.read(),
            },
        }
    }
}

/// A sum of durations.
#[derive(Debug, Default)]
pub(super) struct Nanos(AtomicU64);

impl Nanos {
    pub fn add(&self, time: Duration) {
        self.0.fetch_add(time.as_nanos() as u64, Relaxed);
    }

    fn read(&self) -> Duration {
        Duration::from_nanos(self.0.load(Relaxed))
    }
}
