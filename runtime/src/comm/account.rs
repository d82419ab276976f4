//! The books of one seat: what it counts, and what it draws into the trace.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::layout::AxisSet;
use crate::trace::{Arg, Lane, Tracer};

use super::Site;
use super::call::{Call, axes_name};
use super::own_thread::OwnThread;
use super::stats::{CommStats, Counters};

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

    /// This member is through with `call`, which sent `bytes`.
    pub fn transferred(&self, call: &Call, bytes: usize, begin: Begin) {
        self.count_transfer(call, begin);
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

    fn count_transfer(&self, call: &Call, begin: Begin) {
        let end = Instant::now();
        let transfer = end.saturating_duration_since(begin.at);
        self.counters.transfer.add(transfer);
        if call.asynchronous {
            let inside = self.own_thread.read(end).saturating_sub(begin.in_communication);
            self.counters.hidden.add(transfer.saturating_sub(inside));
        }
    }

    pub fn read(&self) -> CommStats {
        self.counters.read()
    }
}

fn span_name(call: &Call) -> (&'static str, &Arc<str>) {
    (call.op.name(), call.site.shared_field())
}

fn span_args(call: &Call, bytes: usize) -> Vec<(&'static str, Arg)> {
    let operation = Arg::Text(call.operation().into());
    let bytes = Arg::Count(bytes as u64);
    let field = Arg::Text(Arc::clone(call.site.shared_field()));
    let line = call.site.location().map(|line| ("site", Arg::Line(line)));
    [("op", operation), ("bytes", bytes), ("field", field)].into_iter().chain(line).collect()
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
            counters.exposed.add(end - self.start);
            own_thread.leave(end);
        }
        let name = (self.what, self.site.shared_field());
        own_thread.lane.complete(name, "wait", self.start, Vec::new);
    }
}
