//! Errors of collectives.

use std::sync::Arc;
use std::time::Duration;

use meshwright_backend::DeviceFailure;
use meshwright_os::exit_code::{FAILS_AGAIN, LOST};

/// Reason why a collective failed. Ranks in the texts are world ranks.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
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
        /// Hint on where to look.
        hint: &'static str,
    },
    /// A rank has ended that this call needs.
    #[error("rank {rank} {exit}; this rank's {call} cannot complete.{detail}")]
    PeerLeft {
        /// The rank that ended by itself.
        rank: usize,
        /// Exit status of the rank.
        exit: RankExit,
        /// The call that cannot complete.
        call: String,
        /// The last call of the missing rank, and why it is missing.
        detail: String,
    },
    /// Members did not arrive in time.
    #[error("{call} waited {} s for ranks {missing:?}.\nLast calls in this \
             process:\n{last_calls}", waited.as_secs_f64())]
    Timeout {
        /// The call that waited.
        call: String,
        /// Time waited.
        waited: Duration,
        /// The missing ranks.
        missing: Vec<usize>,
        /// The last call of every member, one per line.
        last_calls: String,
    },
    /// All ranks wait for each other. Every rank gets this same error.
    #[error(
        "deadlock: every rank waits for another one.\n{calls}Ranks use two groups in different orders, or wait for a \
         message or an asynchronous call that no rank issues: look at the order of calls around these lines."
    )]
    Deadlock {
        /// The last call of every rank, one per line.
        calls: String,
    },
    /// An argument is invalid; found on this rank before the call was issued.
    #[error("{call}: {problem}")]
    Argument {
        /// The call.
        call: String,
        /// The problem, and the fix.
        problem: String,
    },
    /// The device of this rank failed while it carried out an asynchronous call.
    #[error("{call}: {failure}")]
    Device {
        /// The call.
        call: String,
        /// The failure that the device reported.
        failure: DeviceFailure,
    },
    /// The communication library failed, or a call timed out. All communicators of the rank were aborted.
    #[error("rank {rank}: {call}: {problem}")]
    Engine {
        /// The rank that noticed the failure.
        rank: usize,
        /// The call, or the first of those in flight.
        call: String,
        /// The problem that the library reported.
        problem: String,
    },
    /// The rank that owns the communicator has left the mesh.
    #[error("rank {rank} has left the mesh; its communicators cannot be used")]
    Closed {
        /// The rank.
        rank: usize,
    },
}

impl CommError {
    /// Returns the exit code of a program that fails because of this error: that of the rank that ended, if one did.
    pub fn exit_code(&self) -> u8 {
        match self {
            CommError::PeerLeft { exit, .. } => exit.exit_code(),
            CommError::Mismatch { .. }
            | CommError::Deadlock { .. }
            | CommError::Argument { .. } => FAILS_AGAIN,
            CommError::Timeout { .. }
            | CommError::Device { .. }
            | CommError::Engine { .. }
            | CommError::Closed { .. } => LOST,
        }
    }
}

/// Exit status of a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RankExit {
    /// The body of the rank returned normally.
    Returned,
    /// The rank failed.
    Failed {
        /// The message.
        error: Arc<str>,
        /// The exit code of the program.
        code: u8,
    },
    /// The rank panicked with this message.
    Panicked(Arc<str>),
    /// The process of the rank ended without an announcement, or cannot be reached any more.
    Lost,
    /// The process of the rank sends no heartbeats: for how long, and its last progress.
    Silent(Arc<str>),
}

impl RankExit {
    /// Returns the exit code of a program that fails because of this exit.
    pub fn exit_code(&self) -> u8 {
        match self {
            RankExit::Failed { code, .. } => *code,
            RankExit::Returned | RankExit::Panicked(_) | RankExit::Lost | RankExit::Silent(_) => {
                LOST
            }
        }
    }
}

impl std::fmt::Display for RankExit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RankExit::Returned => f.write_str("has returned"),
            RankExit::Failed { error, .. } => write!(f, "has failed ({error})"),
            RankExit::Panicked(message) => write!(f, "has panicked ({message})"),
            RankExit::Lost => f.write_str(
                "was lost (its process has ended, or its host cannot be reached any more; see the last lines of its \
                 output)",
            ),
            RankExit::Silent(text) => write!(
                f,
                "has sent no heartbeat for {text} (its process is paused, or its host does not answer)"
            ),
        }
    }
}

/// The panic payload that carries a communication error from model code, which returns tensors and not `Result`s, up to
/// [`launch`](super::launch). `launch` turns it back into the error that it holds.
#[derive(Debug, Clone)]
pub struct CommFailure(pub CommError);

impl CommFailure {
    /// Unwinds the rank with `error`, without a panic message.
    pub fn unwind(error: CommError) -> ! {
        std::panic::resume_unwind(Box::new(CommFailure(error)))
    }
}
