//! Accounting of one group member: bytes, calls, times, and spans in the trace.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::trace::{Arg, Lane, Tracer};
use meshwright_backend::StreamKind;
use meshwright_mesh::AxisSet;

use super::CommError;
use super::call::{Call, CommOp, axes_name};
use super::call_observer::CallTransfer;
use super::exposed_time::ExposedClock;
use super::site::Site;
use super::stats::{CommStats, Counters};
use super::timeline::{DeviceSpan, SpanCounter};

/// Counters and trace lanes of one group member.
pub(super) struct Accounting {
    counters: Arc<Counters>,
    pub clock: Arc<ExposedClock>,
    /// Lanes of blocking and of asynchronous collectives, which overlap.
    blocking_lane: Lane,
    async_lane: Lane,
    /// Lane of asynchronous messages, which overlap with both.
    message_lane: Lane,
}

/// The start of a transfer.
#[derive(Clone, Copy)]
pub(super) struct TransferStart {
    /// The time at which all members had arrived.
    pub at: Instant,
    /// Reading of the exposed clock at that time, for an asynchronous call.
    pub exposed: Duration,
}

impl TransferStart {
    /// The start of a transfer by the main thread itself.
    pub fn blocking(at: Instant) -> TransferStart {
        TransferStart { at, exposed: Duration::ZERO }
    }
}

impl Accounting {
    /// Creates accounting without a trace.
    pub fn new(clock: Arc<ExposedClock>) -> Accounting {
        let counters = Arc::default();
        let [blocking_lane, async_lane, message_lane] = [const { Lane::disabled() }; 3];
        Accounting { counters, clock, blocking_lane, async_lane, message_lane }
    }

    /// Creates accounting for `rank` in its group over `axes`, with the lanes `comm tp`, `comm tp (async)` and
    /// `comm tp (messages)` of a tracer.
    pub fn traced(
        clock: Arc<ExposedClock>,
        tracer: &Tracer,
        rank: usize,
        axes: AxisSet,
    ) -> Accounting {
        let name = format!("comm {}", axes_name(axes));
        let lanes = ["", " (async)", " (messages)"];
        let [blocking_lane, async_lane, message_lane] =
            lanes.map(|kind| tracer.rank_lane(rank, &format!("{name}{kind}")));
        Accounting { blocking_lane, async_lane, message_lane, ..Accounting::new(clock) }
    }

    /// Counts a call with its bytes.
    pub fn count_call(&self, bytes: usize) {
        self.counters.calls.fetch_add(1, Relaxed);
        self.counters.bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Counts the calls of a CUDA graph that is replayed.
    pub fn count_replayed(&self, captured: &CommStats) {
        self.counters.calls.fetch_add(captured.calls, Relaxed);
        self.counters.bytes.fetch_add(captured.bytes, Relaxed);
    }

    /// Marks the main thread as in communication, in `operation` for `site`, since `start` and until the guard is
    /// dropped.
    pub fn enter<'a>(
        &'a self,
        operation: &'static str,
        site: &'a Site,
        start: Instant,
    ) -> InCommunication<'a> {
        let is_outermost = self.clock.enter_communication(start);
        InCommunication { accounting: self, operation, site, start, is_outermost, completed: None }
    }

    /// Records a call that is issued at `now` in the group of `world_ranks`. Returns its index in the recorder.
    pub fn record_call(&self, call: &Call, world_ranks: &[usize], now: Instant) -> u64 {
        self.clock.recorder.record(call, world_ranks, now)
    }

    /// Records the outcome of a call that this rank has waited for.
    pub fn record_outcome(&self, index: u64, failure: Option<&CommError>) {
        match failure {
            None => self.clock.recorder.mark_end(index, Instant::now()),
            Some(error) => self.clock.recorder.note_failed_call(error),
        }
    }

    /// Counts the time since `start` as time of a blocked main thread.
    pub fn add_blocked_since(&self, start: Instant) {
        self.counters.blocked.add_time(start.elapsed());
    }

    /// Returns the start of a transfer that begins now, concurrently with the main thread.
    pub fn start_transfer(&self) -> TransferStart {
        let at = Instant::now();
        TransferStart { at, exposed: self.clock.read(at) }
    }

    /// Opens a span of the work that is submitted to `stream` from now on, if the device is traced.
    pub fn open_span(&self, stream: StreamKind) -> Option<DeviceSpan> {
        self.clock.timeline.get().map(|timeline| timeline.open_span(stream))
    }

    /// Closes the span of `call`.
    pub fn close_span(&self, span: Option<DeviceSpan>, call: &Call) {
        let Some(span) = span else { return };
        let lane = match (&call.op, axes_name(call.axes)) {
            _ if span.is_on_compute_stream() => "device compute".to_owned(),
            // Each pair of ranks has a stream for each direction.
            (CommOp::Send { to, .. }, axes) => {
                format!("device comm {axes} to rank {}", to.world_rank)
            }
            (CommOp::Recv { from, .. }, axes) => {
                format!("device comm {axes} from rank {}", from.world_rank)
            }
            (_, axes) => format!("device comm {axes}"),
        };
        let counter = if span.is_on_compute_stream() {
            SpanCounter::TransferAndExposed(Arc::clone(&self.counters))
        } else {
            SpanCounter::Transfer(Arc::clone(&self.counters))
        };
        let observer = self.clock.observer.get().cloned();
        let transfer = observer.map(|observer| (observer, transfer_of(call)));
        let (name, args) = (span_name(call).into(), span_args(call));
        span.close_on(lane, (name, "comm", args), Some(counter), transfer);
    }

    /// Runs `wait`, which makes the compute stream wait for the call of `site`, inside a span of that stream.
    pub fn compute_waits<T>(&self, site: &Site, wait: impl FnOnce() -> T) -> T {
        let span = self.open_span(StreamKind::Compute);
        let result = wait();
        if let Some(span) = span {
            let name = ("wait:", site.shared_field()).into();
            let counter = Some(SpanCounter::Exposed(Arc::clone(&self.counters)));
            span.close_on("device compute".to_owned(), (name, "wait", Vec::new()), counter, None);
        }
        result
    }

    /// Counts and draws the transfer of `call`, which this member has completed.
    pub fn finish_transfer(&self, call: &Call, start: TransferStart) {
        self.count_transfer(call, start);
        if call.on_device && self.is_timed_by_device() {
            return;
        }
        let lane = if call.asynchronous { &self.async_lane } else { &self.blocking_lane };
        lane.end_span(span_name(call), "comm", start.at, || span_args(call));
    }

    /// Counts and draws the transfer of an asynchronous message. It is drawn with its duration only if the message
    /// thread copied it, because other threads copy at the same time.
    pub fn finish_message(&self, call: &Call, start: TransferStart, on_message_thread: bool) {
        self.count_transfer(call, start);
        let args = || span_args(call);
        if on_message_thread {
            self.message_lane.end_span(span_name(call), "comm", start.at, args);
        } else {
            self.message_lane.record_instant(span_name(call), "comm", args);
        }
    }

    /// Counts the time of a long step of a call.
    #[cfg(feature = "mpi")]
    pub fn add_slow_step(&self, call: &Call, time: Duration) {
        self.clock.recorder.add_slow_step(call.index, time);
    }

    /// Returns `true` if the device measures the times of transfers and of waits for them.
    fn is_timed_by_device(&self) -> bool {
        self.clock.timeline.get().is_some()
    }

    fn count_transfer(&self, call: &Call, start: TransferStart) {
        let end = Instant::now();
        self.clock.recorder.mark_start(call.index, start.at);
        self.clock.recorder.mark_end(call.index, end);
        if self.is_timed_by_device() {
            return;
        }
        let transfer = end.saturating_duration_since(start.at);
        self.counters.transfer.add_time(transfer);
        if call.asynchronous {
            let exposed = self.clock.read(end).saturating_sub(start.exposed);
            self.counters.overlapped.add_time(transfer.saturating_sub(exposed));
        }
        if let Some(observer) = self.clock.observer.get() {
            observer.call_transferred(&transfer_of(call), transfer);
        }
    }

    /// Returns the counts so far.
    pub fn stats(&self) -> CommStats {
        let mut stats = self.counters.read();
        if self.is_timed_by_device() {
            stats.times.overlapped = stats.times.transfer.saturating_sub(stats.times.exposed);
        }
        stats
    }
}

fn span_name(call: &Call) -> (&'static str, &Arc<str>) {
    (call.op.name(), call.site.shared_field())
}

fn transfer_of(call: &Call) -> CallTransfer {
    let bytes = match call.op {
        CommOp::Recv { count, .. } => count * call.dtype.map_or(0, |dtype| dtype.bytes()),
        _ => call.bytes,
    };
    CallTransfer { op: call.op.name(), axes: call.axes, bytes }
}

fn span_args(call: &Call) -> Vec<(&'static str, Arg)> {
    let operation = Arg::Text(call.operation().into());
    let bytes = Arg::Count(call.bytes as u64);
    let field = Arg::Text(Arc::clone(call.site.shared_field()));
    let axes = Arg::Text(axes_name(call.axes).into());
    let line = call.site.location().map(|line| ("site", Arg::Line(line)));
    let message = call.site.message().map(|id| ("message", Arg::Text(id.to_string().into())));
    let known = [("op", operation), ("axes", axes), ("bytes", bytes), ("field", field)];
    known.into_iter().chain(line).chain(message).collect()
}

/// Guard of the main thread's time in communication of one group.
pub(super) struct InCommunication<'a> {
    accounting: &'a Accounting,
    operation: &'static str,
    site: &'a Site,
    start: Instant,
    /// Set unless it is nested in another guard.
    is_outermost: bool,
    /// Index in the recorder of the call that was completed.
    completed: Option<u64>,
}

impl InCommunication<'_> {
    /// Records the outcome of the call that the main thread is in.
    pub fn record_outcome(&mut self, index: u64, failure: Option<&CommError>) {
        match failure {
            None => self.completed = Some(index),
            Some(error) => self.accounting.clock.recorder.note_failed_call(error),
        }
    }
}

impl Drop for InCommunication<'_> {
    fn drop(&mut self) {
        let Accounting { counters, clock, .. } = self.accounting;
        let end = Instant::now();
        if let Some(index) = self.completed {
            clock.recorder.mark_end(index, end);
        }
        if self.is_outermost {
            if !self.accounting.is_timed_by_device() {
                counters.exposed.add_time(end - self.start);
            }
            clock.leave_communication(end);
        }
        let name = (self.operation, self.site.shared_field());
        clock.lane.end_span(name, "wait", self.start, Vec::new);
    }
}
