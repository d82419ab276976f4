//! Collectives: one trait, and the engine `local` in which ranks are threads of one process.
//!
//! A [`Communicator`] is one rank's seat in one group of ranks. All members of a group must issue the same
//! calls in the same order; an engine that can compare them does, and reports a difference on every member.
//!
//! ```
//! use meshwright::backend::ViewMut;
//! use meshwright::comm::{CommError, ReduceOp, Site, launch};
//! use meshwright::layout::{AxisId, AxisSet};
//!
//! let sums = launch(&"tp=4".parse()?, |comms| {
//!     let mut data = [comms.rank() as f32];
//!     let tp = comms.group(AxisSet::of(AxisId::Tp));
//!     tp.all_reduce(&Site::here("example"), ReduceOp::Sum, ViewMut::from(&mut data[..]))?;
//!     Ok::<_, CommError>(data[0])
//! })?;
//! assert_eq!(sums, [6.0; 4]);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

mod account;
mod blocks;
mod busy;
mod call;
mod communicator;
mod engine;
mod error;
mod launch;
mod local;
#[cfg(feature = "cuda")]
pub mod nccl;
mod own_thread;
mod panics;
mod peers;
mod pending;
mod site;
mod stats;
mod timeline;

pub use crate::backend::ReduceOp;
pub use blocks::Blocks;
pub use communicator::Communicator;
pub use engine::Engine;
pub use error::{CommError, CommFailure, Departure};
pub use launch::{
    FailureCause, LaunchError, LaunchOptions, RankFailure, launch, launch_rank, launch_with,
};
pub use local::RankComms;
pub use peers::Peers;
pub use pending::Pending;
pub use site::Site;
pub use stats::{CommStats, CommTimes};
pub(crate) use timeline::Open;
pub use timeline::Timeline;
