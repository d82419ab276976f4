//! Scopes of forward functions: names for the messages of collectives that belong to no field, and spans of the trace.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Instant;

use meshwright_backend::StreamKind;
use meshwright_comm::__internal::DeviceSpan;
use meshwright_comm::Timeline;
use meshwright_comm::trace::{Arg, Lane, Name};

use super::running_stage::running_layer;

thread_local! {
    static OPEN: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
    static LANE: RefCell<Lane> = const { RefCell::new(Lane::disabled()) };
    static TIMELINE: RefCell<Option<Arc<Timeline>>> = const { RefCell::new(None) };
    static PASS: Cell<Pass> = const { Cell::new(Pass::Forward) };
    static ACTION: Cell<Option<RunningAction>> = const { Cell::new(None) };
    static BACKWARD: Cell<Location> = const { Cell::new(Location { layer: None, function: "" }) };
}

/// The part of a training step that a thread computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pass {
    /// The forward pass, and everything else.
    Forward,
    /// The forward function of a recomputed segment.
    Recomputation,
    /// The backward pass.
    Backward,
    /// Everything after backward: gradients are reduced and clipped, and parameters are updated.
    Update,
}

/// Guard of a pass, which ends when it is dropped.
#[must_use = "the pass ends when the guard is dropped"]
pub struct PassGuard(Pass);

/// Begins a pass within the current one.
pub fn begin_pass(pass: Pass) -> PassGuard {
    PassGuard(PASS.replace(pass))
}

/// Returns the pass that this thread computes.
pub fn current_pass() -> Pass {
    PASS.get()
}

/// A computation of a pipeline schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunningAction {
    /// `F`, `B`, `I` (input part of backward) or `W` (weight part), as in drawn schedules.
    pub work: &'static str,
    /// The stage.
    pub stage: usize,
    /// The micro-batch.
    pub micro_batch: usize,
}

/// The layer and the forward function that a thread computes, or the backward of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Location {
    /// Field of the model, and the layer if it is a stack; `None` outside of the fields of a model.
    pub layer: Option<(&'static str, Option<usize>)>,
    /// The innermost forward function, such as `Mlp::forward`; empty outside of functions.
    pub function: &'static str,
}

/// Runs `work` as an action of a pipeline schedule.
pub fn run_action<T>(action: RunningAction, work: impl FnOnce() -> T) -> T {
    let before = ACTION.replace(Some(action));
    let result = work();
    ACTION.set(before);
    result
}

/// Returns the action of the pipeline schedule that this thread computes.
pub fn current_action() -> Option<RunningAction> {
    ACTION.get()
}

/// Returns the layer and the function that this thread computes, or the backward of.
pub fn current_location() -> Location {
    let Location { layer, function } = BACKWARD.get();
    let layer = running_layer().or(layer);
    Location { layer, function: current_or(function) }
}

/// Sets the function of what this thread computes outside of forward functions, and returns the location before, for
/// [`set_backward_location`].
pub(crate) fn begin_function(function: &'static str) -> Location {
    set_backward_location(Location { function, ..BACKWARD.get() })
}

/// Sets the location whose backward this thread computes, and returns the one before.
pub(crate) fn set_backward_location(location: Location) -> Location {
    BACKWARD.replace(location)
}

impl Drop for PassGuard {
    fn drop(&mut self) {
        PASS.set(self.0);
    }
}

/// Guard that names the running forward function until it is dropped. Created by `#[forward]`.
#[must_use = "the name holds until the guard is dropped"]
pub struct Scope {
    start: Option<SpanStart>,
}

/// Opens the scope of the forward function `name`, for example `Mlp::forward`.
pub fn scope(name: &'static str) -> Scope {
    OPEN.with_borrow_mut(|open| open.push(name));
    Scope { start: begin_span() }
}

/// Sets the lane and the device timeline on which the scopes of this thread are traced.
pub(crate) fn trace_on(lane: &Lane, timeline: Option<Arc<Timeline>>) {
    LANE.set(lane.clone());
    TIMELINE.set(timeline);
}

/// Returns the name of the innermost open scope, or `otherwise`.
pub(crate) fn current_or(otherwise: &'static str) -> &'static str {
    OPEN.with_borrow(|open| open.last().copied().unwrap_or(otherwise))
}

/// Start of a span on the host, and on the device if there is one.
pub struct SpanStart {
    at: Instant,
    on_device: Option<DeviceSpan>,
}

/// Starts a span if tracing is on.
pub fn begin_span() -> Option<SpanStart> {
    let open = || {
        TIMELINE.with_borrow(|line| line.as_ref().map(|line| line.open_span(StreamKind::Compute)))
    };
    LANE.with_borrow(Lane::is_enabled).then(|| SpanStart { at: Instant::now(), on_device: open() })
}

/// Starts a span of the host alone, which may last longer than the work that it submits, if tracing is on.
pub(crate) fn begin_on_host() -> Option<SpanStart> {
    LANE.with_borrow(Lane::is_enabled).then(|| SpanStart { at: Instant::now(), on_device: None })
}

/// Records the span from `start` until now, if tracing is on: `backward Mlp`.
pub fn end_span(name: impl Into<Name>, start: Option<SpanStart>) {
    record_span(name, start, Vec::new);
}

/// Records the span from `start` until now, if tracing is on, with `key` and `number` as its argument.
pub(crate) fn record_numbered(
    name: impl Into<Name>,
    start: Option<SpanStart>,
    (key, number): (&'static str, usize),
) {
    record_span(name, start, || vec![(key, Arg::Count(number as u64))]);
}

fn record_span(
    name: impl Into<Name>,
    start: Option<SpanStart>,
    args: impl Fn() -> Vec<(&'static str, Arg)>,
) {
    let Some(SpanStart { at, on_device }) = start else { return };
    let name = name.into();
    if let Some(open) = on_device {
        open.close(name.clone(), "compute", args());
    }
    LANE.with_borrow(|lane| lane.end_span(name, "compute", at, args));
}

impl Drop for Scope {
    fn drop(&mut self) {
        if let Some(name) = OPEN.with_borrow_mut(Vec::pop) {
            end_span(("forward", name.trim_end_matches("::forward")), self.start.take());
        }
    }
}
