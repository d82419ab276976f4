//! Lanes of a trace, and the spans recorded on them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::event::{Arg, Event, Name};

/// A lane of a rank, which is off without a tracer. A clone records on the same lane.
#[derive(Debug, Clone)]
pub struct Lane(Option<Arc<Log>>);

/// The events recorded on a lane.
#[derive(Debug)]
pub(super) struct Log {
    pub rank: usize,
    pub name: String,
    /// The origin of timestamps.
    origin: Instant,
    capacity: usize,
    records: Mutex<Records>,
}

#[derive(Debug, Default)]
pub(super) struct Records {
    /// Events in the order of their end.
    pub events: Vec<Event>,
    /// Number of events dropped beyond the capacity.
    pub dropped: u64,
}

impl Lane {
    /// Creates a lane that records nothing.
    pub const fn disabled() -> Lane {
        Lane(None)
    }

    /// Returns true if events are recorded; check it before doing work only for the trace.
    pub fn is_enabled(&self) -> bool {
        self.0.is_some()
    }

    /// Opens a span from now until the guard is dropped: `lane.open_span("optimizer")`, `lane.open_span(("forward",
    /// &path))`.
    #[must_use = "the span ends when the guard is dropped"]
    pub fn open_span(&self, name: impl Into<Name>) -> Span<'_> {
        Span(self.0.as_deref().map(|log| (log, name.into(), Instant::now())))
    }

    /// Records a span from `start` to now; its arguments are created only if the lane is on. Spans of one lane must
    /// nest, and of two spans with the same end the inner one must be recorded first.
    pub fn end_span(
        &self,
        name: impl Into<Name>,
        category: &'static str,
        start: Instant,
        args: impl FnOnce() -> Vec<(&'static str, Arg)>,
    ) {
        if let Some(log) = &self.0 {
            log.record_event(name.into(), category, (start, Instant::now()), args());
        }
    }

    /// Records a span between two past times, like [`end_span`](Self::end_span).
    pub fn record_span(
        &self,
        name: impl Into<Name>,
        category: &'static str,
        times: (Instant, Instant),
        args: Vec<(&'static str, Arg)>,
    ) {
        if let Some(log) = &self.0 {
            log.record_event(name.into(), category, times, args);
        }
    }

    /// Records an instant event: a span of length zero, which may be recorded at any time.
    pub fn record_instant(
        &self,
        name: impl Into<Name>,
        category: &'static str,
        args: impl FnOnce() -> Vec<(&'static str, Arg)>,
    ) {
        if let Some(log) = &self.0 {
            let now = Instant::now();
            log.record_event(name.into(), category, (now, now), args());
        }
    }

    pub(super) fn with_log(log: &Arc<Log>) -> Lane {
        Lane(Some(Arc::clone(log)))
    }
}

/// Guard of an open span, which ends when the guard is dropped.
#[derive(Debug)]
pub struct Span<'a>(Option<(&'a Log, Name, Instant)>);

impl Drop for Span<'_> {
    fn drop(&mut self) {
        if let Some((log, name, start)) = self.0.take() {
            log.record_event(name, "compute", (start, Instant::now()), Vec::new());
        }
    }
}

impl Log {
    pub fn new(rank: usize, name: &str, origin: Instant, capacity: usize) -> Log {
        Log { rank, name: name.into(), origin, capacity, records: Mutex::default() }
    }

    fn record_event(
        &self,
        name: Name,
        category: &'static str,
        (start, end): (Instant, Instant),
        args: Vec<(&'static str, Arg)>,
    ) {
        let since = |time: Instant| time.saturating_duration_since(self.origin).as_nanos() as u64;
        let event = Event { name, category, start: since(start), end: since(end), args };
        let mut records = self.lock_records();
        if records.events.len() < self.capacity {
            records.events.push(event);
        } else {
            records.dropped += 1;
        }
    }

    /// Returns true if no event was recorded or dropped.
    pub fn is_empty(&self) -> bool {
        let records = self.lock_records();
        records.events.is_empty() && records.dropped == 0
    }

    pub fn lock_records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
