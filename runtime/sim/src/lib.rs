//! Training steps that are simulated on a described cluster, before they run.
//!
//! A dry run of a training step leaves a [`StepLog`]: every kernel, collective, message and allocation of one rank, in
//! the order in which its host issues them.

pub mod cluster;
mod record;

pub use record::{
    Action, CallKind, CallSite, CommCall, Context, ContextId, Event, EventKind, Pass, StepLog,
};
