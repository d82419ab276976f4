//! Errors of a run, as messages to its user.

use std::fmt;

use crate::backend::OutOfMemory;
use crate::checkpoint::CheckpointError;
use crate::comm::{CommError, FailureCause, LaunchError};
use crate::data::DataError;
use crate::mesh::MeshError;
use crate::nn::BuildError;
use crate::optim::{GroupsError, OptimizerError};
use crate::pipeline::ExecutorError;
use crate::state_dict::StateDictError;

use super::config::memory_advice;
use super::console::print_line;
use super::{Config, ConfigError, MetricsError};

/// The result type of the trainer and of [`run_on`](crate::run_on).
pub type Result<T> = std::result::Result<T, Error>;

/// Reason why a run failed, printed as one message.
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
        /// The flag that names the checkpoint or folder.
        flag: &'static str,
        /// The problem.
        error: CheckpointError,
    },
    /// The metrics file.
    #[error("{0}")]
    Metrics(#[from] MetricsError),
    /// A collective.
    #[error("{0}")]
    Comm(#[from] CommError),
    /// The pipeline schedule, or the boundaries between stages.
    #[error("{0}")]
    Pipeline(#[from] ExecutorError),
    /// The parameter groups.
    #[error("{0}")]
    Groups(#[from] GroupsError),
    /// The optimizer.
    #[error("{0}")]
    Optimizer(#[from] OptimizerError),
    /// The data of a later step could not be read: training stopped after the last step whose data could.
    #[error("{0}")]
    DataEnded(String),
    /// A continuation could not be sampled, after everything else was done.
    #[error(
        "--sample-tokens: the run is complete, but its continuation could not be sampled (--sample-tokens 0 leaves it out): \
         {error}{}",
        .outputs.iter().map(|line| format!("\n{line}")).collect::<String>()
    )]
    Sample {
        /// The failure.
        error: Box<Error>,
        /// The files that the run has written, and their use.
        outputs: Vec<String>,
    },
    /// The trained model could not be exported.
    #[error("{error}\n{repeat}")]
    Export {
        /// The failure.
        error: Box<Error>,
        /// The checkpoint from which the export can be repeated, and how, or the fact that there is none.
        repeat: String,
    },
    /// The summary of a run could not be printed, after everything else was done.
    #[error(
        "the run is complete, but its summary is lost: {error}{}",
        .outputs.iter().map(|line| format!("\n{line}")).collect::<String>()
    )]
    Stdout {
        /// The failure.
        error: std::io::Error,
        /// The files that the run has written, and their use.
        outputs: Vec<String>,
    },
    /// Training diverged.
    #[error("{0}")]
    Diverged(String),
    /// A rank ran out of memory.
    #[error("rank {rank}: {error}{}", .advice.as_ref().map(|text| format!("\n{text}")).unwrap_or_default())]
    OutOfMemory {
        /// World rank.
        rank: usize,
        /// The allocation that failed.
        error: OutOfMemory,
        /// Settings that take less memory, if those of the run are known.
        advice: Option<String>,
    },
    /// A rank failed, and with it the others.
    #[error("{0}")]
    Ranks(String),
}

impl Error {
    /// Adds the flag that names the checkpoint or Hugging Face folder to an error about it.
    pub(super) fn of_flag<E: Into<StateDictError>>(flag: &'static str) -> impl FnOnce(E) -> Error {
        move |error| match error.into() {
            StateDictError::Checkpoint(error) => Error::Checkpoint { flag, error },
            StateDictError::Mapping(reason) => Error::Input(format!("{flag}: {reason}")),
        }
    }

    /// Returns the failure that caused the others; if a rank panicked, the report of all ranks.
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

    /// Adds settings that take less memory to an out-of-memory error.
    pub(super) fn with_memory_advice(self, config: &Config) -> Error {
        match self {
            Error::OutOfMemory { rank, error, .. } => {
                Error::OutOfMemory { rank, error, advice: Some(memory_advice(config)) }
            }
            error => error,
        }
    }

    /// Adds to a failure of an export how to repeat it.
    pub(super) fn of_export(self, repeat: String) -> Error {
        Error::Export { error: Box::new(self), repeat }
    }

    /// Adds to a failure of sampling that everything else is done; `outputs` are lines about the files of the run.
    pub(super) fn of_sample(self, outputs: Vec<String>) -> Error {
        Error::Sample { error: Box::new(self), outputs }
    }

    /// Prints the message and ends the process with exit code 2 (0 after `--help` that could be printed).
    pub fn exit(self) -> ! {
        match self {
            Error::Config(error) => error.exit(),
            error => {
                print_line(&format!("error: {error}"));
                std::process::exit(2)
            }
        }
    }
}

/// Prints as `Display` does, since `main` prints the `Debug` form of an error that it returns.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
