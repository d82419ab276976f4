//! Collectives and messages between ranks.
//!
//! A [`Communicator`] is one rank's access to one process group: the same methods for every engine. They make a
//! [`Call`], check its arguments, account for it, and issue it to the [`Engine`]: `local`, whose ranks are threads of
//! one process, MPI, whose ranks are processes, NCCL, or one from outside of this crate. All members of a group must
//! issue the same calls in the same order; an engine that can compare them does, and reports a mismatch.
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

mod accounting;
mod blocks;
mod call;
mod call_observer;
mod communicator;
mod completion;
mod dry_run;
mod engine;
mod error;
mod exposed_time;
mod flight;
mod group_member;
mod in_use;
mod launch;
mod launch_options;
mod local;
mod message_id;
#[cfg(feature = "mpi")]
pub mod mpi;
#[cfg(feature = "cuda")]
pub mod nccl;
mod observed;
mod operands;
mod panics;
mod peers;
mod pending;
pub mod process_launch;
mod process_ranks;
mod rank_comms;
mod rank_progress;
mod rank_table;
mod reduction;
mod run_reports;
mod site;
mod stats;
mod sync;
mod time_limits;
mod timeline;
pub mod trace;

pub use blocks::Blocks;
pub use call::{Call, CommOp, Peer};
pub use communicator::Communicator;
pub use completion::{Completion, Promise};
pub use engine::{Engine, ProcessGroup};
pub use error::{CommError, CommFailure, RankExit};
pub use flight::{FlightError, FlightFolder, FlightReport};
pub use group_member::GroupMember;
pub use launch::{
    FailureCause, LaunchError, RankFailure, launch, launch_coded, launch_rank, launch_with,
};
pub use launch_options::LaunchOptions;
pub use meshwright_backend::ReduceOp;
pub use message_id::MessageId;
pub use operands::Operands;
pub use peers::Peers;
pub use pending::{PendingCall, PendingResult};
pub use rank_comms::{ExtendedTimeLimit, RankComms};
pub use rank_progress::RankProgress;
pub use site::Site;
pub use stats::{CommStats, CommTimes};
pub use time_limits::FILE_TIME_LIMIT;
use timeline::DeviceSpan;
pub use timeline::Timeline;

/// Items for the other crates of Meshwright. Not part of the API.
#[doc(hidden)]
pub mod __internal {
    pub use crate::call::axes_name;
    pub use crate::call_observer::{CallObserver, CallTransfer};
    pub use crate::process_launch::random::{random_digits, random_id};
    pub use crate::timeline::DeviceSpan;

    /// Reports to the supervisor of a process.
    pub mod run_reports {
        pub use crate::run_reports::{
            RUN_REPORTS, RunReport, create_reports, read_reports, report, report_start,
        };
    }
}
