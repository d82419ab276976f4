//! The log of a training step on one rank.

mod event;
mod step_log;

pub use event::{Action, CallKind, CommCall, Context, ContextId, Event, EventKind};
pub use step_log::StepLog;
