//! The engine over NCCL: every rank has its own GPU, and ranks are threads of one process or processes on many hosts.
//!
//! - `group` is the path of a call; `point_to_point` that of messages, over `message_comms`: the communicators of
//!   `pair_comms`, or one for all.
//! - `plan` decomposes a collective into transfers of the library and copies on the device.
//! - `submit` submits them, to one stream for each group of axes, ordered with the compute stream by events: the host
//!   does not wait.
//! - `rank_resources` holds the resources that the groups of a rank share: among them `scratch`, the memory of
//!   collectives, and `capture_order`, the order of their calls in CUDA graphs.
//! - `registration` registers memory that is reused with the library, if enabled.
//! - `init` creates the communicators of a rank: the first from an identifier that all ranks have. The communicators
//!   of the process groups that the run is expected to use are split from it, in the same order on all ranks. The
//!   members of another group create its communicator at its first use.
//! - `watchdog` is a thread that monitors the communicators: after an error or a timeout it aborts all communicators of
//!   the rank, and every later call reports the failure.
//!
//! Unlike the engine `local`, the library reduces in its own order, and rounds a sum of `bf16` at every addition:
//! results are the same on all members, but not identical to the bit with the other engine. It cannot compare calls
//! either: a mismatch shows as a timeout. The [identity](crate::MessageId) of a message is not sent along: on
//! each channel messages match in the order of issue, so both ends must issue them in one order, as the ranks of a
//! pipeline check before their first step.

mod api;
mod capture_order;
mod config;
mod engine;
mod group;
mod init;
mod library;
mod message_comms;
mod pair_comms;
mod plan;
mod point_to_point;
mod rank_resources;
mod registration;
mod scratch;
mod settings;
mod watchdog;

pub use api::{
    Comm, CommState, CommStream, Id, Library, LibraryError, Registration, SplitResources, Transfer,
};
pub use engine::NcclEngine;
pub use library::RealLibrary;
pub use settings::{ExpectedGroups, MessagePath, NcclSettings, ParseMessagePathError};
