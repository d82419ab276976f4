//! Multi-process runs: rank assignment by a launcher, rendezvous through a TCP store, and failure detection.
//!
//! A launcher (torchrun, SLURM, mpirun) starts the processes and assigns a rank to each one by environment variables:
//! its [`RankAssignment`]. Then all connect to one [`Store`], a TCP key-value store on rank 0, through which the unique
//! identifier of the communicators is distributed. It stays open during the run, and notifies every rank when another
//! one exits.

mod error;
mod keep_alive;
mod process_rank;
mod protocol;
mod rank_assignment;
mod server;
mod store;

pub use error::StoreError;
pub use process_rank::{ProcessRank, RankAssignmentError};
pub use rank_assignment::RankAssignment;
pub use store::Store;

#[cfg(test)]
mod tests;
