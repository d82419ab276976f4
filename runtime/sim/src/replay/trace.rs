//! Spans of a replayed step, on the lanes of a trace.

use std::fmt;
use std::sync::Arc;

use meshwright_comm::__internal::axes_name;
use meshwright_comm::trace::Name;
use meshwright_mesh::AxisSet;

use crate::record::{Context, EventKind, RunningAction, StepLog};

use super::joint::JointKind;
use super::streams::Interval;

/// A span of a simulated step.
#[derive(Debug, Clone)]
pub struct SimSpan {
    /// Position along `pp`.
    pub position: usize,
    /// The lane.
    pub lane: SimLane,
    /// Operation and layer: `gemm blocks.3`.
    pub name: Name,
    /// Index of the kernel or call in the log of the position; `None` for computations of the schedule, and for calls
    /// of several positions.
    pub event: Option<usize>,
    /// Seconds since the step began on its first position.
    pub start: f64,
    /// Seconds.
    pub duration: f64,
}

/// A lane of a position. It prints the name of the lane in a real trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SimLane {
    /// Computations of the pipeline schedule, on the lane `compute` around their kernels.
    Action,
    /// Kernels: `compute`.
    Compute,
    /// Collectives: `comm tp`, or `comm tp (async)`.
    Collective {
        /// Axes of the process group.
        axes: AxisSet,
        /// True if the rank waits for them later.
        is_asynchronous: bool,
    },
    /// Messages in one direction: `comm pp (messages to 3)`.
    Message {
        /// True for sent ones.
        is_sent: bool,
        /// The other position.
        peer: usize,
    },
    /// Copies between host and device: `transfer`.
    Transfer,
}

impl fmt::Display for SimLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SimLane::Action | SimLane::Compute => f.write_str("compute"),
            SimLane::Collective { axes, is_asynchronous } => {
                let kind = if *is_asynchronous { " (async)" } else { "" };
                write!(f, "comm {}{kind}", axes_name(*axes))
            }
            SimLane::Message { is_sent: true, peer } => write!(f, "comm pp (messages to {peer})"),
            SimLane::Message { is_sent: false, peer } => {
                write!(f, "comm pp (messages from {peer})")
            }
            SimLane::Transfer => f.write_str("transfer"),
        }
    }
}

/// The spans of a step.
pub struct StepTrace<'a> {
    logs: &'a [Arc<StepLog>],
    spans: Vec<SimSpan>,
    /// The action that each position computes, and its time so far.
    actions: Vec<Option<(RunningAction, Interval)>>,
}

impl<'a> StepTrace<'a> {
    pub fn new(logs: &'a [Arc<StepLog>]) -> StepTrace<'a> {
        StepTrace { logs, spans: Vec::new(), actions: vec![None; logs.len()] }
    }

    /// Adds a kernel, or a call that is not joint.
    pub fn add_event(&mut self, position: usize, event: usize, lane: SimLane, run: Interval) {
        let log = &self.logs[position];
        let (idx, event) = (event, &log.events.at(event));
        let Context { layer, action, .. } = log.context(event);
        let op = match &event.kind {
            EventKind::Kernel(kernel) => kernel.op.name(),
            EventKind::Call(call) => call.op.name(),
            _ => return,
        };
        if lane == SimLane::Compute {
            self.extend_action(position, *action, run);
        }
        let name = if layer.is_empty() { Name::Fixed(op) } else { Name::Of(op, Arc::clone(layer)) };
        self.add_span(position, lane, name, run);
        if let Some(span) = self.spans.last_mut() {
            span.event = Some(idx);
        }
    }

    /// Adds a call to the lanes of all its positions.
    pub fn add_joint(&mut self, kind: &JointKind, run: Interval) {
        match *kind {
            JointKind::Message { message, ends: [from, to] } => {
                let text: Arc<str> = message.to_string().into();
                for (position, peer, is_sent, op) in
                    [(from, to, true, "send"), (to, from, false, "recv")]
                {
                    let name = Name::Of(op, Arc::clone(&text));
                    self.add_span(position, SimLane::Message { is_sent, peer }, name, run);
                }
            }
            JointKind::Collective { op, axes } => {
                for position in 0..self.logs.len() {
                    let lane = SimLane::Collective { axes, is_asynchronous: false };
                    self.add_span(position, lane, Name::Fixed(op.name()), run);
                }
            }
        }
    }

    /// Returns the spans, with times since `begin`.
    pub fn finish(mut self, begin: f64) -> Vec<SimSpan> {
        for position in 0..self.logs.len() {
            self.extend_action(position, None, (0.0, 0.0));
        }
        self.spans.iter_mut().for_each(|span| span.start -= begin);
        self.spans
    }

    fn extend_action(
        &mut self,
        position: usize,
        action: Option<RunningAction>,
        (start, end): Interval,
    ) {
        let current = &mut self.actions[position];
        match current {
            Some((known, run)) if Some(*known) == action => run.1 = end,
            _ => {
                let ended = std::mem::replace(current, action.map(|action| (action, (start, end))));
                if let Some((RunningAction { work, stage, micro_batch }, run)) = ended {
                    let name: Arc<str> = format!("{stage}.{micro_batch}").into();
                    self.add_span(position, SimLane::Action, Name::Of(work, name), run);
                }
            }
        }
    }

    fn add_span(&mut self, position: usize, lane: SimLane, name: Name, (start, end): Interval) {
        let duration = end - start;
        self.spans.push(SimSpan { position, lane, name, event: None, start, duration });
    }
}
