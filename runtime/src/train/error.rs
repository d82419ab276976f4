//! Why a run failed, for its user.

use std::fmt;

use crate::backend::OutOfMemory;
use crate::checkpoint::CheckpointError;
use crate::comm::{CommError, FailureCause, LaunchError};
use crate::data::DataError;
use crate::mesh::MeshError;
use crate::nn::BuildError;
use crate::optim::{GroupsError, OptimizerError};

use super::progress::say;
use super::{Config, ConfigError, MetricsError, memory};

/// The result of everything that a user starts.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a run failed; its text is one clear message.
#[derive(thiserror::Error)]
pub enum Error {
    /// The settings.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// A combination of settings, model and mesh.
    #[error("{0}")]
    Input(String),
    /// The text of a mesh.
    #[error("mesh: {0}")]
    Mesh(#[from] MeshError),
    /// The model's sizes, on this mesh.
    #[error("{0}")]
    Build(#[from] BuildError),
    /// The training data.
    #[error("{0}")]
    Data(#[from] DataError),
    /// A checkpoint, or a Hugging Face folder.
    #[error("{flag}: {error}")]
    Checkpoint {
        /// The flag that names it.
        flag: &'static str,
        /// What is wrong with it.
        error: CheckpointError,
    },
    /// The metrics file.
    #[error("{0}")]
    Metrics(#[from] MetricsError),
    /// A collective.
    #[error("{0}")]
    Comm(#[from] CommError),
    /// The parameter groups.
    #[error("{0}")]
    Groups(#[from] GroupsError),
    /// The optimizer.
    #[error("{0}")]
    Optimizer(#[from] OptimizerError),
    /// Training diverged.
    #[error("{0}")]
    Diverged(String),
    /// A rank ran out of memory.
    #[error("rank {rank}: {error}{}", .advice.as_ref().map(|text| format!("\n{text}")).unwrap_or_default())]
    OutOfMemory {
        /// World rank.
        rank: usize,
        /// What did not fit.
        error: OutOfMemory,
        /// What takes less memory, where the settings of the run are known.
        advice: Option<String>,
    },
    /// A rank failed, and with it the others.
    #[error("{0}")]
    Ranks(String),
}

impl Error {
    /// Turns an error of a checkpoint or folder into one that names the flag which led there.
    pub(super) fn of_flag(flag: &'static str) -> impl FnOnce(CheckpointError) -> Error {
        move |error| Error::Checkpoint { flag, error }
    }

    /// The failure that caused the others; where a rank panicked, the account of all ranks.
    pub(super) fn of_ranks(mut error: LaunchError<Error>) -> Error {
        let text = error.to_string();
        if error.failures.is_empty() {
            return Error::Ranks(text);
        }
        let first = error.failures.swap_remove(0);
        match first.cause {
            FailureCause::Error(error) => error,
            FailureCause::OutOfMemory(error) => {
                Error::OutOfMemory { rank: first.rank, error, advice: None }
            }
            _ => Error::Ranks(text),
        }
    }

    /// The same error; one that more memory would have prevented, with what takes less under these settings.
    pub(super) fn advised(self, config: &Config) -> Error {
        match self {
            Error::OutOfMemory { rank, error, .. } => {
                Error::OutOfMemory { rank, error, advice: Some(memory::advice(config)) }
            }
            error => error,
        }
    }

    /// Prints the message and ends the process with code 2 (0 where `--help` was asked for).
    pub fn exit(self) -> ! {
        match self {
            Error::Config(error) => error.exit(),
            error => {
                say(&format!("error: {error}"));
                std::process::exit(2)
            }
        }
    }
}

/// As `Display`: what `main` prints when it returns the error.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
