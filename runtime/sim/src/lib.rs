//! Training steps that are simulated on a described cluster, before they run.
//!
//! A dry run of a training step leaves a [`StepLog`]: every kernel, collective, message and allocation of one rank, in
//! the order in which its host issues them. [`simulate`] replays the logs of all positions along `pp` on a
//! [`Cluster`](cluster::Cluster).
//!
//! The times of kernels and collectives follow from the curves of the cluster, which are measured on single kernels and
//! collectives. What follows from their order follows from the logs: overlap, pipeline bubbles, and waits. Software has
//! two constants, [`SoftwareFactors`].
//!
//! Limits:
//! - Ranks of one position along `pp` are alike, so they begin their collectives together.
//! - Calls on different streams do not slow each other on shared links.
//! - Kernels are slowed by collectives of their position, but neither by messages nor by collectives over `pp`.
//! - Messages without an identity, which sum gradients of tied parameters, do not wait for their sender.
//!
//! ```
//! use std::sync::Arc;
//!
//! use meshwright_sim::cluster::Catalog;
//! use meshwright_sim::{SimOptions, StepLog, simulate};
//!
//! let cluster = Catalog::new().cluster("h100-dgx")?;
//! let mesh = "pp=2,fsdp=64,tp=8".parse()?;
//! let logs = [Arc::new(StepLog::default()), Arc::new(StepLog::default())];
//! let step = simulate(&cluster, &mesh, &logs, &SimOptions::default())?;
//! assert_eq!(step.seconds, 0.0);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

pub mod calibrate;
pub mod cluster;
mod error;
mod options;
mod record;
mod replay;
mod step;
#[cfg(test)]
mod tests;
mod time;
mod traffic;
mod utilization;

pub use error::{BlockedPosition, SimError};
pub use options::SimOptions;
pub use record::{
    CallSite, CommCall, CommOpKind, Context, ContextId, EventKind, EventList, LiveBuffer,
    MemoryPeak, Pass, RunningAction, StepEvent, StepLog,
};
pub use replay::{Computation, PositionTime, SimLane, SimSpan};
pub use step::{SimulatedStep, simulate};
pub use time::SoftwareFactors;
pub use traffic::{AxisTraffic, traffic};
pub use utilization::{RunDuration, StepWork, Utilization};
