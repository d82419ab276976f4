//! Multi-process runs: rank assignment by a launcher, rendezvous through a TCP store, and failure detection.
//!
//! A launcher (torchrun, SLURM, mpirun) starts the processes and assigns a rank to each one by environment variables:
//! its [`RankAssignment`]. Then all connect to one [`Store`], a TCP key-value store on rank 0, through which the unique
//! identifier of the communicators is distributed. It stays open during the run, and notifies every rank when another
//! one exits, or sends no heartbeat any more. Processes prove that they know the [`Token`] of the job.

mod arrivals;
mod error;
mod handshake;
mod heartbeat;
mod keep_alive;
mod listen;
mod notices;
mod process_rank;
mod protocol;
pub(crate) mod random;
mod rank_assignment;
mod rendezvous;
mod server;
mod store;
mod token;
mod token_file;
mod token_source;

pub use error::StoreError;
pub use process_rank::{ProcessRank, RankAssignmentError};
pub use rank_assignment::RankAssignment;
pub use store::{Store, StoreOptions};
pub use token::Token;
pub use token_file::HomeFile;
pub use token_source::TokenSource;

#[cfg(test)]
mod store_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod token_tests;
