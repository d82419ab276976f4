//! The books of one seat: what it counts, and what it draws into the trace.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::backend::Queue;
use crate::layout::AxisSet;
use crate::trace::{Arg, Lane, Tracer};

use super::Site;
use super::call::{Call, Op, axes_name};
use super::own_thread::OwnThread;
use super::stats::{CommStats, Counters};
use super::timeline::{Counted, Open};

/// Counters and lanes of one seat.
pub(super) struct Account {
    counters: Counters,
    pub own_thread: Arc<OwnThread>,
    /// Synchronous calls, and asynchronous ones, which overlap with them.
    calls: Lane,
    started: Lane,
    /// Asynchronous messages, which overlap with both.
    messages: Lane,
}

/// When a collective was under way, and what the own thread did meanwhile.
#[derive(Clone, Copy)]
pub(super) struct Begin {
    /// When all members had arrived.
    pub at: Instant,
    /// What the clock of the own thread showed then, for an asynchronous call.
    pub in_communication: Duration,
}

impl Begin {
    /// Of a call that the own thread makes itself.
    pub fn at(at: Instant) -> Begin {
        Begin { at, in_communication: Duration::ZERO }
    }
}

impl Account {
    /// An account without a trace.
    pub fn new(own_thread: Arc<OwnThread>) -> Account {
        let counters = Counters::default();
        let [calls, started, messages] = [const { Lane::off() }; 3];
        Account { counters, own_thread, calls, started, messages }
    }

    /// The account of `rank` in its group over `axes`, with the lanes `comm tp`, `comm tp (async)` and `comm tp (messages)`
    /// of a tracer.
    pub fn traced(
        own_thread: Arc<OwnThread>,
        tracer: &Tracer,
        rank: usize,
        axes: AxisSet,
    ) -> Account {
        let name = format!("comm {}", axes_name(axes));
        let lanes = ["", " (async)", " (messages)"];
        let [calls, started, messages] =
            lanes.map(|kind| tracer.lane(rank, &format!("{name}{kind}")));
        Account { calls, started, messages, ..Account::new(own_thread) }
    }

    /// A call with its bytes.
    pub fn count(&self, bytes: usize) {
        self.counters.calls.fetch_add(1, Relaxed);
        self.counters.bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Calls that are made again as they were recorded.
    #[cfg(feature = "cuda")]
    pub fn count_again(&self, recorded: &CommStats) {
        self.counters.calls.fetch_add(recorded.calls, Relaxed);
        self.counters.bytes.fetch_add(recorded.bytes, Relaxed);
    }

    /// The own thread is in communication, doing `what` for `site`, until the guard is dropped.
    pub fn enter(&self, what: &'static str, site: &Site) -> Inside<'_> {
        let start = Instant::now();
        let is_first = self.own_thread.enter(start);
        Inside { account: self, what, site: site.clone(), start, is_first }
    }

    /// The own thread stood still since `start`.
    pub fn blocked_since(&self, start: Instant) {
        self.counters.blocked.add(start.elapsed());
    }

    /// A transfer that begins now, beside the own thread.
    pub fn begin(&self) -> Begin {
        let at = Instant::now();
        Begin { at, in_communication: self.own_thread.read(at) }
    }

    /// A span of what is queued from now on, where the device is traced.
    pub fn open(&self, queue: Queue) -> Option<Open> {
        self.own_thread.timeline.get().map(|timeline| timeline.open(queue))
    }

    /// Ends the span of `call`, which sends `bytes`.
    pub fn close(self: &Arc<Self>, open: Option<Open>, call: &Call, bytes: usize) {
        let Some(open) = open else { return };
        let lane = match (&call.op, axes_name(call.axes)) {
            _ if open.is_of_model() => "device compute".to_owned(),
            // Each two ranks have a queue of their own for each direction.
            (Op::Send { to, .. }, axes) => format!("device comm {axes} to rank {to}"),
            (Op::Recv { from, .. }, axes) => format!("device comm {axes} from rank {from}"),
            (_, axes) => format!("device comm {axes}"),
        };
        let counted = match open.is_of_model() {
            true => Counted::Both(Arc::clone(self)),
            false => Counted::Transfer(Arc::clone(self)),
        };
        let args = span_args(call, bytes);
        open.close_on(lane, span_name(call).into(), "comm", args, Some(counted));
    }

    /// Lets the model's queue wait as `wait` says, for what `site` asked for.
    pub fn model_waits<T>(self: &Arc<Self>, site: &Site, wait: impl FnOnce() -> T) -> T {
        let open = self.open(Queue::Compute);
        let result = wait();
        if let Some(open) = open {
            let name = ("wait:", site.shared_field()).into();
            let counted = Some(Counted::Exposed(Arc::clone(self)));
            open.close_on("device compute".to_owned(), name, "wait", Vec::new(), counted);
        }
        result
    }

    /// A transfer took so long, by the clock of the device.
    pub fn transferred_on_device(&self, time: Duration) {
        self.counters.transfer.add(time);
    }

    /// The model's queue was so long in communication, by the clock of the device.
    pub fn exposed_on_device(&self, time: Duration) {
        self.counters.exposed.add(time);
    }

    /// This member is through with `call`, which sent `bytes`.
    pub fn transferred(&self, call: &Call, bytes: usize, begin: Begin) {
        self.count_transfer(call, begin);
        if call.on_device && self.is_timed_by_device() {
            return;
        }
        let lane = if call.asynchronous { &self.started } else { &self.calls };
        lane.complete(span_name(call), "comm", begin.at, || span_args(call, bytes));
    }

    /// As `transferred`, for an asynchronous message. Only what the thread for messages copies itself is drawn with its
    /// length: other threads copy at the same time.
    pub fn message_transferred(
        &self,
        call: &Call,
        bytes: usize,
        begin: Begin,
        on_its_thread: bool,
    ) {
        self.count_transfer(call, begin);
        let args = || span_args(call, bytes);
        match on_its_thread {
            true => self.messages.complete(span_name(call), "comm", begin.at, args),
            false => self.messages.mark(span_name(call), "comm", args),
        }
    }

    /// Whether the times of transfers, and the waits for them, are those that the device has measured.
    fn is_timed_by_device(&self) -> bool {
        self.own_thread.timeline.get().is_some()
    }

    fn count_transfer(&self, call: &Call, begin: Begin) {
        if self.is_timed_by_device() {
            return;
        }
        let end = Instant::now();
        let transfer = end.saturating_duration_since(begin.at);
        self.counters.transfer.add(transfer);
        if call.asynchronous {
            let inside = self.own_thread.read(end).saturating_sub(begin.in_communication);
            self.counters.hidden.add(transfer.saturating_sub(inside));
        }
    }

    pub fn read(&self) -> CommStats {
        let mut stats = self.counters.read();
        if self.is_timed_by_device() {
            stats.times.hidden = stats.times.transfer.saturating_sub(stats.times.exposed);
        }
        stats
    }
}

fn span_name(call: &Call) -> (&'static str, &Arc<str>) {
    (call.op.name(), call.site.shared_field())
}

fn span_args(call: &Call, bytes: usize) -> Vec<(&'static str, Arg)> {
    let operation = Arg::Text(call.operation().into());
    let bytes = Arg::Count(bytes as u64);
    let field = Arg::Text(Arc::clone(call.site.shared_field()));
    let axes = Arg::Text(axes_name(call.axes).into());
    let line = call.site.location().map(|line| ("site", Arg::Line(line)));
    let known = [("op", operation), ("axes", axes), ("bytes", bytes), ("field", field)];
    known.into_iter().chain(line).collect()
}

/// The own thread's stay in communication of one group.
pub(super) struct Inside<'a> {
    account: &'a Account,
    what: &'static str,
    site: Site,
    pub start: Instant,
    /// Not inside another stay.
    is_first: bool,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let Account { counters, own_thread, .. } = self.account;
        let end = Instant::now();
        if self.is_first {
            if !self.account.is_timed_by_device() {
                counters.exposed.add(end - self.start);
            }
            own_thread.leave(end);
        }
        let name = (self.what, self.site.shared_field());
        own_thread.lane.complete(name, "wait", self.start, Vec::new);
    }
}
