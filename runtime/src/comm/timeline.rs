//! What the queues of a device do, and when, for the trace.
//!
//! A span of a queue lies between two timed [moments](Moment), which are recorded around what is queued, and read when
//! they have come: the host does not wait for them. The device has a clock of its own. Once in a step both clocks are
//! compared: the host waits for a moment of an empty queue, and knows when it was.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::backend::{Device, Moment, Queue};
use crate::trace::{Arg, Lane, Name, Tracer};

use super::account::Account;

/// Lanes for the queues of one rank, and what is yet to be drawn on them.
pub struct Timeline {
    device: Arc<dyn Device>,
    tracer: Arc<Tracer>,
    rank: usize,
    state: Mutex<State>,
}

struct State {
    compared: Arc<Compared>,
    /// In the order in which they were closed, which is that of their ends in each queue.
    pending: VecDeque<Span>,
    lanes: HashMap<String, DeviceLane>,
}

/// When both clocks were compared.
struct Compared {
    moment: Moment,
    at: Instant,
}

/// A span that has begun in a queue.
pub(crate) struct Open {
    timeline: Arc<Timeline>,
    queue: Queue,
    from: Moment,
    compared: Arc<Compared>,
}

/// A span that was queued.
struct Span {
    compared: Arc<Compared>,
    from: Moment,
    to: Moment,
    lane: String,
    name: Name,
    category: &'static str,
    args: Vec<(&'static str, Arg)>,
    counted: Option<Counted>,
}

/// In whose books the time of a span is entered.
pub(super) enum Counted {
    /// A transfer.
    Transfer(Arc<Account>),
    /// A stay of the model in communication.
    Exposed(Arc<Account>),
    /// A transfer that the model's queue makes itself.
    Both(Arc<Account>),
}

/// One lane. Spans by a later comparison of the clocks do not begin before the end of those by an earlier one, which
/// comparisons are not exact enough to promise.
struct DeviceLane {
    lane: Lane,
    compared: Arc<Compared>,
    earliest: Instant,
    latest: Instant,
}

impl Timeline {
    /// Lanes of `rank` in the trace, for the queues of `device`.
    pub fn new(device: Arc<dyn Device>, tracer: Arc<Tracer>, rank: usize) -> Arc<Timeline> {
        let compared = Arc::new(compare(&*device));
        let state = State { compared, pending: VecDeque::new(), lanes: HashMap::new() };
        Arc::new(Timeline { device, tracer, rank, state: Mutex::new(state) })
    }

    /// A span of what is queued in `queue` from now on, until it is closed. Spans of one queue are closed in the opposite
    /// order of their beginnings.
    pub(crate) fn open(self: &Arc<Self>, queue: Queue) -> Open {
        let from = self.device.mark_timed(queue);
        let compared = Arc::clone(&self.lock().compared);
        Open { timeline: Arc::clone(self), queue, from, compared }
    }

    /// Begins a step: draws what is done, and compares the clocks.
    pub fn begin_step(&self) {
        self.draw();
        let compared = Arc::new(compare(&*self.device));
        self.lock().compared = compared;
    }

    /// Waits for what is queued, and draws it.
    pub fn finish(&self) {
        let ends: Vec<Moment> = self.lock().pending.iter().map(|span| span.to.clone()).collect();
        ends.iter().for_each(|end| self.device.synchronize(end));
        self.draw();
    }

    /// Draws what is done, and forgets the rest: a rank that ends early waits for nothing any more.
    pub fn close(&self) {
        // Of a device that has failed nothing more can be read.
        let _ = catch_unwind(AssertUnwindSafe(|| self.draw()));
        self.lock().pending.clear();
    }

    fn draw(&self) {
        let mut state = self.lock();
        let State { pending, lanes, .. } = &mut *state;
        while let Some(span) = pending.pop_front_if(|span| self.device.is_done(&span.to)) {
            let time = |moment| {
                let millis = self.device.elapsed_ms(&span.compared.moment, moment);
                let since = Duration::from_secs_f64(f64::from(millis.abs()) * 1e-3);
                let at = span.compared.at;
                if millis < 0.0 { at.checked_sub(since).unwrap_or(at) } else { at + since }
            };
            let (from, to) = (time(&span.from), time(&span.to));
            if let Some(counted) = &span.counted {
                counted.enter(to.saturating_duration_since(from));
            }
            let lane = lanes.entry(span.lane).or_insert_with_key(|name| DeviceLane {
                lane: self.tracer.lane(self.rank, name),
                compared: Arc::clone(&span.compared),
                earliest: from,
                latest: from,
            });
            if !Arc::ptr_eq(&lane.compared, &span.compared) {
                lane.compared = span.compared;
                lane.earliest = lane.latest;
            }
            let [from, to] = [from, to].map(|time| time.max(lane.earliest));
            lane.latest = lane.latest.max(to);
            lane.lane.between(span.name, span.category, (from, to), span.args);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Ends the span with what is queued so far, and names it.
    pub(crate) fn close(
        self,
        name: impl Into<Name>,
        category: &'static str,
        args: Vec<(&'static str, Arg)>,
    ) {
        let lane = match self.queue {
            Queue::Transfer => "device transfer",
            _ => "device compute",
        };
        self.close_on(lane.into(), name.into(), category, args, None);
    }

    /// Ends the span of a call, which is drawn on a lane for its group.
    pub(super) fn close_on(
        self,
        lane: String,
        name: Name,
        category: &'static str,
        args: Vec<(&'static str, Arg)>,
        counted: Option<Counted>,
    ) {
        let Open { timeline, queue, from, compared } = self;
        let to = timeline.device.mark_timed(queue);
        let span = Span { compared, from, to, lane, name, category, args, counted };
        timeline.lock().pending.push_back(span);
    }

    /// Whether the model's own queue is meant.
    pub(super) fn is_of_model(&self) -> bool {
        self.queue == Queue::Compute
    }
}

impl Counted {
    fn enter(&self, time: Duration) {
        match self {
            Counted::Transfer(account) => account.transferred_on_device(time),
            Counted::Exposed(account) => account.exposed_on_device(time),
            Counted::Both(account) => {
                account.transferred_on_device(time);
                account.exposed_on_device(time);
            }
        }
    }
}

impl fmt::Debug for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timeline(rank {})", self.rank)
    }
}

/// The host waits for a moment of a queue that has nothing to do, which was half-way between then and now.
fn compare(device: &dyn Device) -> Compared {
    let before = Instant::now();
    let moment = device.mark_timed(Queue::Waiting);
    device.synchronize(&moment);
    let at = before + before.elapsed() / 2;
    Compared { moment, at }
}
