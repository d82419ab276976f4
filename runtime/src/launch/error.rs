//! Why processes did not find each other.

use std::io;
use std::time::Duration;

/// Why ranks did not find each other.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Rank 0 cannot listen.
    #[error(
        "rank 0 cannot listen at {address}: {error}; choose another MASTER_PORT, or end what uses this one"
    )]
    Listen {
        /// Where.
        address: String,
        /// What the system said.
        error: io::Error,
    },
    /// Rank 0 was not reached.
    #[error(
        "rank {rank} did not reach rank 0 at {address} within {} s: {error}; is MASTER_ADDR the host of rank 0, and \
         MASTER_PORT open on it?", waited.as_secs_f64()
    )]
    Connect {
        /// Who tried.
        rank: usize,
        /// Where.
        address: String,
        /// How long.
        waited: Duration,
        /// What the last attempt gave.
        error: io::Error,
    },
    /// Something listens there that is not rank 0, or it has ended at once.
    #[error(
        "rank {rank} found something at {address} that does not answer as rank 0 does ({error}); has rank 0 failed, or \
         does another program use MASTER_PORT?"
    )]
    Stranger {
        /// Who tried.
        rank: usize,
        /// Where.
        address: String,
        /// How it answered.
        error: io::Error,
    },
    /// The store does not let this rank in.
    #[error("rank 0 at {address} refuses rank {rank}: {reason}")]
    Refused {
        /// Who was refused.
        rank: usize,
        /// By whom.
        address: String,
        /// Its reason.
        reason: String,
    },
    /// A key that nobody has set.
    #[error("rank {rank} waited {} s for `{key}`: {reason}; has a rank failed, or not been started?", waited.as_secs_f64())]
    Missing {
        /// Who waited.
        rank: usize,
        /// For what.
        key: String,
        /// How long.
        waited: Duration,
        /// What the store said.
        reason: String,
    },
    /// The connection broke.
    #[error("rank {rank} has lost rank 0 at {address}: {error}")]
    Lost {
        /// Who lost it.
        rank: usize,
        /// Where it was.
        address: String,
        /// What the system said.
        error: io::Error,
    },
}
