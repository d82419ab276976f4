//! Errors of the TCP store.

use std::io;
use std::time::Duration;

use meshwright_os::exit_code::{LOST, REFUSED};

use crate::RankExit;

/// An error of the TCP store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Rank 0 cannot listen.
    #[error(
        "rank 0 cannot listen at {address}: {error}; choose another MASTER_PORT, or stop the program that uses this \
         port"
    )]
    Listen {
        /// Address of the store.
        address: String,
        /// The error of the system.
        error: io::Error,
    },
    /// The address of the store is that of another host.
    #[error(
        "MASTER_ADDR in {address} is no address of this host, and connecting to it does not reach rank 0, which is \
         this process ({error}); set MASTER_ADDR to the host of rank 0"
    )]
    OtherHost {
        /// Address of the store.
        address: String,
        /// The error of the connection.
        error: io::Error,
    },
    /// The token of this process cannot be used, or is not that of rank 0.
    #[error("{0}")]
    Token(String),
    /// Rank 0 could not be reached.
    #[error(
        "rank {rank} did not reach rank 0 at {address} within {} s: {error}; check that MASTER_ADDR is the host of \
         rank 0, and that MASTER_PORT is open on it", waited.as_secs_f64()
    )]
    Connect {
        /// The connecting rank.
        rank: usize,
        /// The address of rank 0.
        address: String,
        /// Time waited.
        waited: Duration,
        /// The error of the last attempt.
        error: io::Error,
    },
    /// The address of rank 0 is unknown.
    #[error(
        "rank {rank} finds no address of MASTER_ADDR in {address} ({error}); set it to the name or the address of the \
         host of rank 0"
    )]
    Unresolved {
        /// The connecting rank.
        rank: usize,
        /// The address of rank 0.
        address: String,
        /// The error of the last attempt.
        error: io::Error,
    },
    /// Ranks have not connected in time.
    #[error(
        "rank 0 waited {} s for {missing} of {world} at {address}; check that the launcher has started this program as \
         often, and that MASTER_ADDR and MASTER_PORT are the same in all processes", waited.as_secs_f64()
    )]
    Unconnected {
        /// The ranks: `ranks 1, 2`.
        missing: String,
        /// World size.
        world: usize,
        /// Address of the store.
        address: String,
        /// Time waited.
        waited: Duration,
    },
    /// A rank has ended while others were waited for.
    #[error("rank {rank} {exit}")]
    Ended {
        /// The rank.
        rank: usize,
        /// The end of the rank.
        exit: RankExit,
    },
    /// The program that listens is not the store of rank 0, or has exited.
    #[error(
        "rank {rank} found no store at {address} ({error}); check that rank 0 runs, and that no other program uses \
         MASTER_PORT"
    )]
    NotAStore {
        /// The connecting rank.
        rank: usize,
        /// The address of rank 0.
        address: String,
        /// The error of the handshake.
        error: io::Error,
    },
    /// The store refuses this rank.
    #[error("rank 0 at {address} refuses rank {rank}: {reason}")]
    Refused {
        /// The refused rank.
        rank: usize,
        /// The address of rank 0.
        address: String,
        /// The reason.
        reason: String,
    },
    /// A key was not set in time.
    #[error("rank {rank} waited {} s for `{key}`: {reason}; check that all ranks were started and none has \
             failed", waited.as_secs_f64())]
    Missing {
        /// The waiting rank.
        rank: usize,
        /// The key.
        key: String,
        /// Time waited.
        waited: Duration,
        /// The reply of the store.
        reason: String,
    },
    /// The connection to rank 0 broke.
    #[error("rank {rank} has lost rank 0 at {address}: {error}")]
    Lost {
        /// The rank that lost it.
        rank: usize,
        /// The address of rank 0.
        address: String,
        /// The error of the system.
        error: io::Error,
    },
}

impl StoreError {
    /// Returns the exit code of a program that fails because of this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            StoreError::Listen { .. }
            | StoreError::OtherHost { .. }
            | StoreError::NotAStore { .. }
            | StoreError::Unresolved { .. }
            | StoreError::Token(_)
            | StoreError::Refused { .. } => REFUSED,
            StoreError::Connect { .. }
            | StoreError::Unconnected { .. }
            | StoreError::Missing { .. }
            | StoreError::Lost { .. } => LOST,
            StoreError::Ended { exit, .. } => exit.exit_code(),
        }
    }
}
