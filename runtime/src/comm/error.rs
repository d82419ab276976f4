//! What can go wrong in a collective.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::DeviceFailure;

/// Why a collective failed. Ranks in the texts are world ranks.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommError {
    /// The members of a group issued different calls. Every member gets this same error.
    #[error(
        "the ranks of group {group} issued different calls as their call number {number}:\n{calls}{hint}"
    )]
    Mismatch {
        /// The group: its axes and ranks.
        group: String,
        /// Position in the group's sequence of calls, from 1.
        number: u64,
        /// Each distinct call with the ranks and the site that issued it, one per line.
        calls: String,
        /// What to look at.
        hint: &'static str,
    },
    /// A rank ended while others need it.
    #[error("rank {rank} {departure}; this rank's {call} cannot complete.{detail}")]
    PeerLeft {
        /// The rank that ended by itself.
        rank: usize,
        /// How it ended.
        departure: Departure,
        /// The call that cannot complete.
        call: String,
        /// The last call of the rank that is missing, and why it is missing.
        detail: String,
    },
    /// Members did not arrive in time.
    #[error("{call} waited {} s for ranks {missing:?}.\nLast calls in this process:\n{last_calls}", waited.as_secs_f64())]
    Timeout {
        /// The call that waited.
        call: String,
        /// How long it waited.
        waited: Duration,
        /// The ranks that did not come.
        missing: Vec<usize>,
        /// The last call of every member, one per line.
        last_calls: String,
    },
    /// All ranks wait for each other. Every one of them gets this same error.
    #[error(
        "deadlock: every rank waits for another one.\n{calls}Ranks use two groups in different orders, or wait for a \
         message or an asynchronous call that nobody issues: look at the order of calls around these lines."
    )]
    Deadlock {
        /// The last call of every rank, one per line.
        calls: String,
    },
    /// An argument does not fit; found on this rank before any other was involved.
    #[error("{call}: {problem}")]
    Argument {
        /// The call.
        call: String,
        /// What does not fit, and the fix.
        problem: String,
    },
    /// The device of this rank failed while it carried out an asynchronous call.
    #[error("{call}: {failure}")]
    Device {
        /// The call.
        call: String,
        /// What the device reported.
        failure: DeviceFailure,
    },
    /// The library behind the communicators failed, or a call took too long. All communicators of the rank have ended.
    #[error("rank {rank}: {call}: {problem}")]
    Engine {
        /// The rank that noticed.
        rank: usize,
        /// The call, or the first of those that were under way.
        call: String,
        /// What the library reported.
        problem: String,
    },
    /// The rank that owns the communicator has left the mesh.
    #[error("rank {rank} has left the mesh; its communicators cannot be used any more")]
    Closed {
        /// The rank.
        rank: usize,
    },
}

/// How a rank ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Departure {
    /// Its body returned normally.
    Returned,
    /// Its body returned this error.
    Failed(Arc<str>),
    /// It panicked with this message.
    Panicked(Arc<str>),
    /// Its process is gone without a word, or is not reached any more.
    Lost,
}

impl std::fmt::Display for Departure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Departure::Returned => f.write_str("has returned"),
            Departure::Failed(error) => write!(f, "has failed ({error})"),
            Departure::Panicked(message) => write!(f, "has panicked ({message})"),
            Departure::Lost => f.write_str(
                "was lost (its process has ended, or its host is not reached any more; its own last lines may say why)",
            ),
        }
    }
}

/// The panic payload by which model code, which returns tensors and not `Result`s, passes a communication error
/// up to whoever runs the rank. [`launch`](super::launch) turns it back into the error it holds.
#[derive(Debug, Clone)]
pub struct CommFailure(pub CommError);

impl CommFailure {
    /// Unwinds the rank with `error`, without a panic message.
    pub fn unwind(error: CommError) -> ! {
        std::panic::resume_unwind(Box::new(CommFailure(error)))
    }
}
