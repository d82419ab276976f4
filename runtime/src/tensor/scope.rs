//! Which forward function runs now: for the messages of collectives that belong to no field, and for traces.

use std::cell::RefCell;
use std::time::Instant;

use crate::trace::Lane;

thread_local! {
    static OPEN: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
    static LANE: RefCell<Lane> = const { RefCell::new(Lane::off()) };
}

/// Names the running forward function until it is dropped. Made by `#[forward]`.
#[must_use = "the name holds until the guard is dropped"]
pub struct Scope {
    /// When it was opened, where a trace is recorded.
    start: Option<Instant>,
}

/// Opens a scope: `name` is that of the forward function, `Mlp::forward`.
pub fn scope(name: &'static str) -> Scope {
    OPEN.with_borrow_mut(|open| open.push(name));
    Scope { start: begin() }
}

/// Says where the scopes of this thread are traced.
pub(crate) fn trace_on(lane: &Lane) {
    LANE.set(lane.clone());
}

/// The innermost open scope, or `otherwise`.
pub(crate) fn current_or(otherwise: &'static str) -> &'static str {
    OPEN.with_borrow(|open| open.last().copied().unwrap_or(otherwise))
}

/// The present time, where a trace is recorded.
pub(crate) fn begin() -> Option<Instant> {
    LANE.with_borrow(Lane::is_on).then(Instant::now)
}

/// Records what went on since `start`, if that is known: `backward Mlp::forward`.
pub(crate) fn record(what: &'static str, name: &str, start: Option<Instant>) {
    if let Some(start) = start {
        LANE.with_borrow(|lane| lane.complete((what, name), "compute", start, Vec::new));
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if let Some(name) = OPEN.with_borrow_mut(Vec::pop) {
            record("forward", name.trim_end_matches("::forward"), self.start);
        }
    }
}
