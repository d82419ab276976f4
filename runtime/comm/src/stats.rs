//! Statistics of one group member: bytes, calls and times.

use std::ops::{AddAssign, Sub};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Communication of one rank in one process group so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommStats {
    /// Payload bytes sent by this rank, counted as the bandwidth-optimal ring algorithm would send them, so that the
    /// number does not depend on the engine. With `n` bytes of the whole tensor and `p` members:
    ///
    /// | operation | bytes per rank |
    /// |---|---|
    /// | all_reduce | `2 n (p-1) / p` |
    /// | all_gather, reduce_scatter, broadcast, reduce | `n (p-1) / p` |
    /// | all_to_all | the parts for other members |
    /// | scatter | at the root, the parts of other members; elsewhere 0 |
    /// | gather | at the root 0; elsewhere the own part |
    /// | send | `n`; recv and barrier 0 |
    ///
    /// Divisions round down.
    pub bytes: u64,
    /// Calls issued, including asynchronous ones.
    pub calls: u64,
    /// Times of transfers and waits.
    pub times: CommTimes,
}

/// Time spent on communication, and its overlap with computation.
///
/// The rank's **main thread** computes. It is *in communication* while it is inside a blocking collective, `send`,
/// `recv` or [`PendingCall::wait`](super::PendingCall::wait) of any of its groups, and computing otherwise. A
/// collective is a **transfer** from the arrival of the last member until this member is done: waiting for a late
/// member is not part of it.
///
/// With asynchronous collectives alone, in one group, `transfer <= overlapped + exposed`. The fraction of overlapped
/// communication is `overlapped / transfer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommTimes {
    /// Duration of all transfers, blocking and asynchronous.
    pub transfer: Duration,
    /// Overlapped communication: the part of asynchronous transfers during which the main thread was computing. A
    /// transfer that runs during a wait for another group is not overlapped.
    pub overlapped: Duration,
    /// Exposed communication: time the main thread was in communication of this group, for transfers and for late
    /// members.
    pub exposed: Duration,
    /// The part of `exposed` in which the main thread was blocked instead of copying and reducing data itself.
    pub blocked: Duration,
}

impl CommTimes {
    fn combine(self, other: CommTimes, f: impl Fn(Duration, Duration) -> Duration) -> CommTimes {
        CommTimes {
            transfer: f(self.transfer, other.transfer),
            overlapped: f(self.overlapped, other.overlapped),
            exposed: f(self.exposed, other.exposed),
            blocked: f(self.blocked, other.blocked),
        }
    }
}

/// The sum over groups, or over ranks.
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
    pub overlapped: Nanos,
    pub exposed: Nanos,
    pub blocked: Nanos,
}

impl Counters {
    pub fn read(&self) -> CommStats {
        CommStats {
            bytes: self.bytes.load(Relaxed),
            calls: self.calls.load(Relaxed),
            times: CommTimes {
                transfer: self.transfer.read_time(),
                overlapped: self.overlapped.read_time(),
                exposed: self.exposed.read_time(),
                blocked: self.blocked.read_time(),
            },
        }
    }
}

/// A sum of durations.
#[derive(Debug, Default)]
pub(super) struct Nanos(AtomicU64);

impl Nanos {
    pub fn add_time(&self, time: Duration) {
        self.0.fetch_add(time.as_nanos() as u64, Relaxed);
    }

    fn read_time(&self) -> Duration {
        Duration::from_nanos(self.0.load(Relaxed))
    }
}
