//! Spans of a device's streams in the trace.
//!
//! A span lies between two timed [events](DeviceEvent), which are recorded around the submitted work and read when
//! they have completed: the host does not wait for them. The device has its own clock. Once per step both clocks are
//! synchronized: the host waits for an event on an idle stream, whose time is then known on both clocks.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::trace::{Arg, Lane, Name, Tracer};
use meshwright_backend::{Device, DeviceEvent, StreamKind};

use super::call_observer::{CallObserver, CallTransfer};
use super::stats::Counters;

/// Trace lanes for the streams of one rank, and the spans that are not drawn yet.
pub struct Timeline {
    device: Arc<dyn Device>,
    tracer: Arc<Tracer>,
    rank: usize,
    state: Mutex<TimelineState>,
}

struct TimelineState {
    clock_sync: Arc<ClockSync>,
    /// Closed spans in the order of closing, which is the order of their ends on each stream.
    pending: VecDeque<ClosedSpan>,
    lanes: HashMap<String, DeviceLane>,
}

/// One time on the clocks of the device and of the host.
struct ClockSync {
    event: DeviceEvent,
    at: Instant,
}

/// An open span of a stream.
pub struct DeviceSpan {
    timeline: Arc<Timeline>,
    stream: StreamKind,
    from: DeviceEvent,
    clock_sync: Arc<ClockSync>,
}

/// A closed span, whose events may not have completed yet.
struct ClosedSpan {
    clock_sync: Arc<ClockSync>,
    from: DeviceEvent,
    to: DeviceEvent,
    lane: String,
    name: Name,
    category: &'static str,
    args: Vec<(&'static str, Arg)>,
    counter: Option<SpanCounter>,
    transfer: Option<ObservedTransfer>,
}

/// The transfer that a span measures, and its observer.
pub(super) type ObservedTransfer = (Arc<dyn CallObserver>, CallTransfer);

/// The counters that the duration of a span is added to.
pub(super) enum SpanCounter {
    /// A transfer.
    Transfer(Arc<Counters>),
    /// Exposed communication of the compute stream.
    Exposed(Arc<Counters>),
    /// A transfer on the compute stream, which is exposed.
    TransferAndExposed(Arc<Counters>),
}

/// One lane. Spans after a clock synchronization are kept from starting before the end of those before it, as
/// synchronization is not exact.
struct DeviceLane {
    lane: Lane,
    clock_sync: Arc<ClockSync>,
    earliest: Instant,
    latest: Instant,
}

impl Timeline {
    /// Creates the lanes of `rank` for the streams of `device`.
    pub fn new(device: Arc<dyn Device>, tracer: Arc<Tracer>, rank: usize) -> Arc<Timeline> {
        let clock_sync = Arc::new(synchronize_clocks(&*device));
        let state = TimelineState { clock_sync, pending: VecDeque::new(), lanes: HashMap::new() };
        Arc::new(Timeline { device, tracer, rank, state: Mutex::new(state) })
    }

    /// Opens a span of the work that is submitted to `stream` until the span is closed. Spans of one stream are closed
    /// in the reverse order of opening.
    #[doc(hidden)]
    pub fn open_span(self: &Arc<Self>, stream: StreamKind) -> DeviceSpan {
        let from = self.device.record_timed_event(stream);
        let clock_sync = Arc::clone(&self.lock_state().clock_sync);
        DeviceSpan { timeline: Arc::clone(self), stream, from, clock_sync }
    }

    /// Begins a step: draws the completed spans, and synchronizes the clocks.
    pub fn begin_step(&self) {
        self.draw();
        let clock_sync = Arc::new(synchronize_clocks(&*self.device));
        self.lock_state().clock_sync = clock_sync;
    }

    /// Waits for all closed spans, and draws them.
    pub fn finish_spans(&self) {
        let ends: Vec<DeviceEvent> =
            self.lock_state().pending.iter().map(|span| span.to.clone()).collect();
        ends.iter().for_each(|end| self.device.synchronize(end));
        self.draw();
    }

    /// Draws the completed spans and drops the others: a rank that fails does not wait for its device.
    pub fn close(&self) {
        // A device that has failed cannot be read any more.
        let _ = catch_unwind(AssertUnwindSafe(|| self.draw()));
        self.lock_state().pending.clear();
    }

    fn draw(&self) {
        let mut state = self.lock_state();
        let TimelineState { pending, lanes, .. } = &mut *state;
        while let Some(span) = pending.pop_front_if(|span| self.device.is_done(&span.to)) {
            let time = |event| {
                let millis = self.device.elapsed_ms(&span.clock_sync.event, event);
                let since = Duration::from_secs_f64(f64::from(millis.abs()) * 1e-3);
                let at = span.clock_sync.at;
                if millis < 0.0 { at.checked_sub(since).unwrap_or(at) } else { at + since }
            };
            let (from, to) = (time(&span.from), time(&span.to));
            if let Some(counter) = &span.counter {
                counter.add_time(to.saturating_duration_since(from));
            }
            if let Some((observer, transfer)) = &span.transfer {
                observer.call_transferred(transfer, to.saturating_duration_since(from));
            }
            let lane = lanes.entry(span.lane).or_insert_with_key(|name| DeviceLane {
                lane: self.tracer.rank_lane(self.rank, name),
                clock_sync: Arc::clone(&span.clock_sync),
                earliest: from,
                latest: from,
            });
            if !Arc::ptr_eq(&lane.clock_sync, &span.clock_sync) {
                lane.clock_sync = span.clock_sync;
                lane.earliest = lane.latest;
            }
            let [from, to] = [from, to].map(|time| time.max(lane.earliest));
            lane.latest = lane.latest.max(to);
            lane.lane.record_span(span.name, span.category, (from, to), span.args);
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, TimelineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeviceSpan {
    /// Closes the span after the work that was submitted so far, and names it.
    #[doc(hidden)]
    pub fn close(
        self,
        name: impl Into<Name>,
        category: &'static str,
        args: Vec<(&'static str, Arg)>,
    ) {
        let lane = match self.stream {
            StreamKind::Transfer => "device transfer",
            _ => "device compute",
        };
        self.close_on(lane.into(), (name.into(), category, args), None, None);
    }

    /// Closes the span of a call, which is drawn on a lane of its group.
    pub(super) fn close_on(
        self,
        lane: String,
        (name, category, args): (Name, &'static str, Vec<(&'static str, Arg)>),
        counter: Option<SpanCounter>,
        transfer: Option<ObservedTransfer>,
    ) {
        let DeviceSpan { timeline, stream, from, clock_sync } = self;
        let to = timeline.device.record_timed_event(stream);
        let span =
            ClosedSpan { clock_sync, from, to, lane, name, category, args, counter, transfer };
        timeline.lock_state().pending.push_back(span);
    }

    /// Returns `true` for a span of the compute stream.
    pub(super) fn is_on_compute_stream(&self) -> bool {
        self.stream == StreamKind::Compute
    }
}

impl SpanCounter {
    /// Adds a duration by the clock of the device.
    fn add_time(&self, time: Duration) {
        match self {
            SpanCounter::Transfer(counters) => counters.transfer.add_time(time),
            SpanCounter::Exposed(counters) => counters.exposed.add_time(time),
            SpanCounter::TransferAndExposed(counters) => {
                counters.transfer.add_time(time);
                counters.exposed.add_time(time);
            }
        }
    }
}

impl fmt::Debug for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timeline(rank {})", self.rank)
    }
}

/// Waits for an event on an idle stream, whose time is taken as half-way between recording it and now.
fn synchronize_clocks(device: &dyn Device) -> ClockSync {
    let before = Instant::now();
    let event = device.record_timed_event(StreamKind::Waiting);
    device.synchronize(&event);
    let at = before + before.elapsed() / 2;
    ClockSync { event, at }
}
