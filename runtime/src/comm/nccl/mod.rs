//! The engine over NCCL: every rank has a GPU of its own, and ranks are threads of one process or processes of many hosts.
//!
//! - `work` is what a collective checks before anything is queued.
//! - `plan` says which transfers of the library, and which copies on the device, make up a collective.
//! - `queueing` queues them, one queue of the device for each group of axes, ordered with the queue of the model by
//!   moments: the host waits for nothing. `communicator` is what a rank calls.
//! - `registry` makes memory that is used again and again known to the library, where that is asked for.
//! - `engine` makes the communicators of a rank: the first from an identifier that all ranks have, the others split from
//!   it in one order on all ranks.
//! - `watch` is a thread that looks after them: what fails, or takes longer than the timeout, ends all communicators of
//!   the rank, and every later call reports it.
//!
//! Unlike the engine `local`, the library adds in an order of its own, and rounds a sum of `bf16` at every addition: results
//! are the same on all members, but not to the bit those of the other engine. Nor can it compare calls: a mismatch shows as
//! a call that takes too long.

mod api;
mod communicator;
mod config;
mod engine;
mod messages;
mod plan;
mod queueing;
mod real;
mod registry;
mod watch;
mod work;

pub use api::{Comm, Id, Library, LibraryError, On, Registration, State, Transfer};
pub use engine::{Engine, Settings};
pub use real::RealLibrary;
