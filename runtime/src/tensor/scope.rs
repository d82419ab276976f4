//! Which forward function runs now: for the messages of collectives that belong to no field, and for traces.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use crate::backend::Queue;
use crate::comm::{DeviceSpan, Timeline};
use crate::trace::{Lane, Name};

thread_local! {
    static OPEN: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
    static LANE: RefCell<Lane> = const { RefCell::new(Lane::off()) };
    static TIMELINE: RefCell<Option<Arc<Timeline>>> = const { RefCell::new(None) };
}

/// Names the running forward function until it is dropped. Made by `#[forward]`.
#[must_use = "the name holds until the guard is dropped"]
pub struct Scope {
    start: Option<Start>,
}

/// Opens a scope: `name` is that of the forward function, `Mlp::forward`.
pub fn scope(name: &'static str) -> Scope {
    OPEN.with_borrow_mut(|open| open.push(name));
    Scope { start: begin() }
}

/// Says where the scopes of this thread are traced: what the thread does, and what a device does for it.
pub(crate) fn trace_on(lane: &Lane, timeline: Option<Arc<Timeline>>) {
    LANE.set(lane.clone());
    TIMELINE.set(timeline);
}

/// The innermost open scope, or `otherwise`.
pub(crate) fn current_or(otherwise: &'static str) -> &'static str {
    OPEN.with_borrow(|open| open.last().copied().unwrap_or(otherwise))
}

/// The beginning of a span.
pub(crate) struct Start {
    at: Instant,
    on_device: Option<DeviceSpan>,
}

/// A span that begins now, where a trace is recorded.
pub(crate) fn begin() -> Option<Start> {
    let open = || TIMELINE.with_borrow(|line| line.as_ref().map(|line| line.open(Queue::Compute)));
    LANE.with_borrow(Lane::is_on).then(|| Start { at: Instant::now(), on_device: open() })
}

/// Records what went on since `start`, if that is known: `backward Mlp::forward`.
pub(crate) fn record(name: impl Into<Name>, start: Option<Start>) {
    let Some(Start { at, on_device }) = start else { return };
    let name = name.into();
    if let Some(open) = on_device {
        open.close(name.clone(), "compute", Vec::new());
    }
    LANE.with_borrow(|lane| lane.complete(name, "compute", at, Vec::new));
}

impl Drop for Scope {
    fn drop(&mut self) {
        if let Some(name) = OPEN.with_borrow_mut(Vec::pop) {
            record(("forward", name.trim_end_matches("::forward")), self.start.take());
        }
    }
}
