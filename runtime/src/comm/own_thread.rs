//! How much of its time a rank's own thread has spent in communication.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::trace::Lane;

use super::timeline::Timeline;

/// A clock of one rank that runs while its own thread is in communication, whatever the group. Other threads read it.
pub(super) struct OwnThread {
    origin: Instant,
    /// Twice a time in nanoseconds, plus one while the thread is in communication. Outside, the time is what the clock
    /// shows; inside, it is the moment at which it would have shown zero. One word, so that it is always consistent.
    state: AtomicU64,
    /// What the thread does, in the trace.
    pub lane: Lane,
    /// What the queues of the rank's device do, in the trace; set where there is both.
    pub timeline: OnceLock<Arc<Timeline>>,
}

impl OwnThread {
    pub fn new(lane: Lane) -> OwnThread {
        OwnThread {
            origin: Instant::now(),
            state: AtomicU64::new(0),
            lane,
            timeline: OnceLock::new(),
        }
    }

    /// The thread enters communication at `now`. Gives whether it was outside; if not, the clock runs already.
    pub fn enter(&self, now: Instant) -> bool {
        let state = self.state.load(Relaxed);
        let is_outside = state & 1 == 0;
        if is_outside {
            self.state.store(((self.nanos(now) - state / 2) << 1) | 1, Relaxed);
        }
        is_outside
    }

    /// The thread leaves communication at `now`.
    pub fn leave(&self, now: Instant) {
        self.state.store((self.read(now).as_nanos() as u64) << 1, Relaxed);
    }

    /// What the clock shows at `now`: the time spent in communication so far.
    pub fn read(&self, now: Instant) -> Duration {
        let state = self.state.load(Relaxed);
        Duration::from_nanos(match state & 1 {
            0 => state / 2,
            _ => self.nanos(now).saturating_sub(state / 2),
        })
    }

    fn nanos(&self, time: Instant) -> u64 {
        time.saturating_duration_since(self.origin).as_nanos() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_runs_inside_and_rests_outside() {
        let thread = OwnThread::new(Lane::off());
        let at = |millis| thread.origin + Duration::from_millis(millis);
        let shows = |millis, expected| {
            assert_eq!(thread.read(at(millis)), Duration::from_millis(expected), "at {millis} ms")
        };
        shows(5, 0);
        assert!(thread.enter(at(10)));
        shows(10, 0);
        shows(13, 3);
        assert!(!thread.enter(at(14)));
        thread.leave(at(20));
        shows(20, 10);
        shows(70, 10);
        assert!(thread.enter(at(100)));
        shows(101, 11);
        thread.leave(at(105));
        shows(200, 15);
    }
}
