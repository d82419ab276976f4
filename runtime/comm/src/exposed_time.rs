//! Exposed communication: the time that a rank's main thread has spent in communication.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::trace::Lane;

use super::call_observer::CallObserver;
use super::flight::FlightRecorder;
use super::timeline::Timeline;

/// A clock that runs while a rank's main thread is in communication of any group. Other threads read it.
pub(super) struct ExposedClock {
    origin: Instant,
    /// Twice a time in nanoseconds, plus one while the thread is in communication. Outside, the time is the reading of
    /// the clock; inside, the instant at which the reading would have been zero. One word, so that it is always
    /// consistent.
    state: AtomicU64,
    /// The main thread's lane in the trace.
    pub lane: Lane,
    /// The device streams in the trace; set if tracing is on and the rank has a device.
    pub timeline: OnceLock<Arc<Timeline>>,
    /// The recorder of the last calls.
    pub recorder: FlightRecorder,
    /// The observer of the calls of the rank; set if it has one.
    pub observer: OnceLock<Arc<dyn CallObserver>>,
}

impl ExposedClock {
    /// Creates a clock that reads zero.
    pub fn new(lane: Lane) -> ExposedClock {
        ExposedClock {
            origin: Instant::now(),
            state: AtomicU64::new(0),
            lane,
            timeline: OnceLock::new(),
            recorder: FlightRecorder::new(),
            observer: OnceLock::new(),
        }
    }

    /// Starts the clock at `now`. Returns `false` if it was running already.
    pub fn enter_communication(&self, now: Instant) -> bool {
        let state = self.state.load(Relaxed);
        let is_outside = state & 1 == 0;
        if is_outside {
            self.state.store(((self.nanos_at(now) - state / 2) << 1) | 1, Relaxed);
        }
        is_outside
    }

    /// Stops the clock at `now`.
    pub fn leave_communication(&self, now: Instant) {
        self.state.store((self.read(now).as_nanos() as u64) << 1, Relaxed);
    }

    /// Returns the reading at `now`: the time spent in communication so far.
    pub fn read(&self, now: Instant) -> Duration {
        let state = self.state.load(Relaxed);
        Duration::from_nanos(match state & 1 {
            0 => state / 2,
            _ => self.nanos_at(now).saturating_sub(state / 2),
        })
    }

    /// Returns true while the main thread is in communication.
    pub fn is_communicating(&self) -> bool {
        self.state.load(Relaxed) & 1 == 1
    }

    fn nanos_at(&self, time: Instant) -> u64 {
        time.saturating_duration_since(self.origin).as_nanos() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_runs_only_in_communication() {
        let thread = ExposedClock::new(Lane::disabled());
        let at = |millis| thread.origin + Duration::from_millis(millis);
        let shows = |millis, expected| {
            assert_eq!(thread.read(at(millis)), Duration::from_millis(expected), "at {millis} ms")
        };
        shows(5, 0);
        assert!(thread.enter_communication(at(10)));
        shows(10, 0);
        shows(13, 3);
        assert!(!thread.enter_communication(at(14)));
        thread.leave_communication(at(20));
        shows(20, 10);
        shows(70, 10);
        assert!(thread.enter_communication(at(100)));
        shows(101, 11);
        thread.leave_communication(at(105));
        shows(200, 15);
    }
}
