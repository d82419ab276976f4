//! Training steps that are simulated on a described cluster, before they run.
//!
//! A dry run of a training step leaves a [`StepLog`]: every kernel, collective, message and allocation of one rank, in
//! the order in which its host issues them. [`simulate`] replays the logs of all positions along `pp` on a
//! [`Cluster`](cluster::Cluster).

pub mod cluster;
mod error;
mod options;
mod record;
mod replay;
mod step;
#[cfg(test)]
mod tests;
mod time;
mod utilization;

pub use error::{BlockedPosition, SimError};
pub use options::SimOptions;
pub use record::{Action, CallKind, CommCall, Context, ContextId, Event, EventKind, StepLog};
pub use replay::{Computation, Lane, PositionTime, Span};
pub use step::{SimulatedStep, simulate};
pub use time::SoftwareFactors;
pub use utilization::{RunDuration, StepWork, Utilization};
