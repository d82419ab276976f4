//! Errors of a run, as messages to its user.

use std::fmt;
use std::path::PathBuf;

use crate::backend::OutOfMemory;
use crate::checkpoint::CheckpointError;
use crate::comm::__internal::run_reports::{self, RunReport};
use crate::comm::{CommError, FailureCause, LaunchError};
use crate::data::{DataError, TokenizeError};
use crate::mesh::{MeshError, MeshShape};
use crate::nn::BuildError;
use crate::optim::{GroupsError, OptimizerError};
use crate::os::exit_code::{self, LOST, code_of_error, code_of_io};
use crate::parity::Failure;
use crate::pipeline::ExecutorError;
use crate::state_dict::StateDictError;

use super::config::memory_advice;
use super::console::print_line;
use super::{Config, ConfigError, MetricsError};

/// The result type of the trainer and of [`run_on`](crate::run_on). With a second argument it is the `Result` of the
/// standard library, so that a program which imports the prelude can still write `Result<u32, ParseIntError>`.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reason why a run failed, printed as one message.
#[derive(thiserror::Error)]
#[non_exhaustive]
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
    /// Text that does not become tokens.
    #[error("{0}")]
    Tokenize(#[from] TokenizeError),
    /// The validation data.
    #[error("{}", describe_validation_error(flag, error))]
    Validation {
        /// The flag that names the data.
        flag: &'static str,
        /// The problem.
        error: Box<Error>,
    },
    /// A checkpoint, or a Hugging Face folder.
    #[error("{flag}: {error}")]
    Checkpoint {
        /// The flag that names the checkpoint or folder.
        flag: &'static str,
        /// The problem.
        error: CheckpointError,
    },
    /// A checkpoint that a rank could not write, on all ranks alike.
    #[error("{flag}: {message}")]
    Save {
        /// The flag or call that names the folder.
        flag: &'static str,
        /// Completed steps of the state.
        steps: u64,
        /// The first failure.
        message: String,
        /// The exit code.
        code: u8,
    },
    /// The metrics file.
    #[error("{0}")]
    Metrics(#[from] MetricsError),
    /// A [`StepObserver`](super::StepObserver) of the program.
    #[error("observer: {0}")]
    Observer(Box<dyn std::error::Error + Send + Sync>),
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
    #[error("{message}")]
    DataEnded {
        /// The cause, and the checkpoint to continue from.
        message: String,
        /// True if the system could not read the file.
        is_lost: bool,
    },
    /// A file of the run could not be written.
    #[error("{flag}: cannot write {}: {source}", path.display())]
    Output {
        /// The flag that names the file.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The processes of a run could not connect to each other.
    #[error("{0}")]
    Rendezvous(String),
    /// Ranks that hold different copies of a parameter, as `--check-replicas` has found.
    #[error("{0}")]
    ReplicasDiffer(String),
    /// A signal or `--stop-after` has stopped the run, whose state is saved.
    #[error("{0}")]
    Stopped(String),
    /// The state of a run that was stopped could not be saved.
    #[error("{stop}, but its state could not be saved: {error}")]
    Unsaved {
        /// The reason and the step.
        stop: String,
        /// The failure.
        error: Box<Error>,
    },
    /// A continuation could not be sampled, after everything else was done.
    #[error(
        "--sample-tokens: the run is complete, but its continuation could not be sampled (--sample-tokens 0 leaves it \
         out): {error}{}",
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
    /// A mesh that does not give the numbers of one rank.
    #[error("{0}")]
    Mismatch(String),
    /// A run on a mesh that is compared with one rank.
    #[error("on mesh {mesh}: {error}")]
    OnMesh {
        /// The mesh.
        mesh: MeshShape,
        /// The failure.
        error: Box<Error>,
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
        /// Settings that take less memory, if the settings of the run are known.
        advice: Option<String>,
    },
    /// A rank failed, and with it the others.
    #[error("{report}")]
    Ranks {
        /// The failures of all ranks.
        report: String,
        /// The exit code of the first one.
        code: u8,
    },
}

impl Error {
    /// Creates the error of a [`StepObserver`](super::StepObserver): a text, or an error such as [`std::io::Error`],
    /// from which [the exit code](Self::exit_code) follows.
    pub fn of_observer(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::Observer(error.into())
    }

    /// Adds the flag that names the checkpoint or Hugging Face folder to an error about it.
    pub(super) fn of_flag<E: Into<StateDictError>>(flag: &'static str) -> impl FnOnce(E) -> Error {
        move |error| match error.into() {
            StateDictError::Checkpoint(error) => Error::Checkpoint { flag, error },
            error => Error::Input(format!("{flag}: {error}")),
        }
    }

    /// Names the flag of the validation data in an error about it.
    pub(super) fn of_validation<E: Into<Error>>(flag: &'static str) -> impl FnOnce(E) -> Error {
        move |error| Error::Validation { flag, error: Box::new(error.into()) }
    }

    /// Returns the failure that caused the others; if a rank panicked, the report of all ranks. A supervisor gets it,
    /// too.
    pub(super) fn of_ranks(mut error: LaunchError<Error>) -> Error {
        let report = error.to_string();
        if error.failures.is_empty() {
            return Error::Ranks { report, code: LOST };
        }
        let first = error.failures.swap_remove(0);
        let (rank, reason) = (first.rank, first.cause.to_string());
        let stopped_by = first.stopped_by.or_else(|| match &first.cause {
            FailureCause::Error(error) => error.lost_peer(),
            FailureCause::Comm(CommError::PeerLeft { rank, .. }) => Some(*rank),
            _ => None,
        });
        run_reports::report(RunReport::Failed { rank, stopped_by, reason });
        match first.cause {
            FailureCause::Error(error) => error,
            FailureCause::OutOfMemory(error) => {
                Error::OutOfMemory { rank: first.rank, error, advice: None }
            }
            cause => Error::Ranks { report, code: cause.exit_code(Error::exit_code) },
        }
    }

    /// Returns the rank whose end has made a call fail.
    fn lost_peer(&self) -> Option<usize> {
        match self {
            Error::Comm(CommError::PeerLeft { rank, .. })
            | Error::Pipeline(ExecutorError::Comm(CommError::PeerLeft { rank, .. })) => Some(*rank),
            _ => None,
        }
    }

    /// Returns the error of a comparison with one rank.
    pub(crate) fn of_parity(failure: Failure<Error>) -> Error {
        match failure {
            Failure::Run { mesh, error } => Error::OnMesh { mesh, error: Box::new(error) },
            Failure::Numbers(text) => Error::Mismatch(text),
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

    /// Adds to a failure of a save the stop that made the run save.
    pub(super) fn of_stop(self, stop: String) -> Error {
        Error::Unsaved { stop, error: Box::new(self) }
    }

    /// Adds to a failure of an export how to repeat it.
    pub(super) fn of_export(self, repeat: String) -> Error {
        Error::Export { error: Box::new(self), repeat }
    }

    /// Adds to a failure of sampling that everything else is done; `outputs` are lines about the files of the run.
    pub(super) fn of_sample(self, outputs: Vec<String>) -> Error {
        Error::Sample { error: Box::new(self), outputs }
    }

    /// Returns the exit code of a program that fails because of this error, the same on all ranks. See [`exit_code`].
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Config(_)
            | Error::Input(_)
            | Error::Mesh(_)
            | Error::Build(_)
            | Error::Groups(_)
            | Error::Optimizer(_) => exit_code::REFUSED,
            Error::Data(error) => code_of_error(error),
            Error::Tokenize(error) => code_of_error(error),
            Error::Checkpoint { error, .. } => code_of_error(error),
            Error::Metrics(error) => code_of_error(error),
            Error::Observer(error) => code_of_error(&**error),
            Error::Output { source, .. } | Error::Stdout { error: source, .. } => {
                code_of_io(source)
            }
            Error::Comm(error) | Error::Pipeline(ExecutorError::Comm(error)) => error.exit_code(),
            Error::Pipeline(_) => exit_code::REFUSED,
            Error::Export { error, .. }
            | Error::Sample { error, .. }
            | Error::OnMesh { error, .. }
            | Error::Validation { error, .. }
            | Error::Unsaved { error, .. } => error.exit_code(),
            Error::Stopped(_) => exit_code::STOPPED,
            Error::DataEnded { is_lost: true, .. }
            | Error::Rendezvous(_)
            | Error::OutOfMemory { .. } => LOST,
            Error::DataEnded { is_lost: false, .. }
            | Error::Diverged(_)
            | Error::ReplicasDiffer(_)
            | Error::Mismatch(_) => exit_code::FAILS_AGAIN,
            Error::Ranks { code, .. } | Error::Save { code, .. } => *code,
        }
    }

    /// Prints the message and ends the process with [its exit code](Self::exit_code) (0 after `--help` that could be
    /// printed).
    pub fn exit(self) -> ! {
        match self {
            Error::Config(error) => error.exit(),
            error => {
                let is_stop = matches!(error, Error::Stopped(_));
                if !is_stop {
                    run_reports::report(RunReport::Message(error.to_string()));
                }
                print_line(&format!("{}{error}", if is_stop { "" } else { "error: " }));
                std::process::exit(i32::from(error.exit_code()))
            }
        }
    }
}

/// Describes an error of validation data, which is read like the training data.
fn describe_validation_error(flag: &str, error: &Error) -> String {
    let text = error.to_string();
    format!("{flag}: {}", text.strip_prefix("--data: ").unwrap_or(&text))
}

/// Prints as `Display` does, since `main` prints the `Debug` form of an error that it returns.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::checkpoint::CheckpointError;
    use crate::comm::{RankComms, RankExit, Site, launch};

    fn code_of_ranks(body: impl Fn(RankComms) -> Result<()> + Sync) -> u8 {
        let Err(error) = launch(&"dp=2".parse().unwrap(), body) else { panic!("no rank failed") };
        Error::of_ranks(error).exit_code()
    }

    /// A rank that waits for the one that fails first exits with the same code.
    #[test]
    fn the_root_cause_has_the_exit_code() {
        let fail = |cause: &(dyn Fn() -> Result<()> + Sync)| {
            code_of_ranks(|comms| {
                if comms.rank() == 1 {
                    return cause();
                }
                Ok(comms.world().barrier(&Site::new("test"))?)
            })
        };
        assert_eq!(fail(&|| Err(Error::Input("a flag".into()))), exit_code::REFUSED);
        assert_eq!(fail(&|| Err(Error::Diverged("NaN".into()))), exit_code::FAILS_AGAIN);
        assert_eq!(fail(&|| panic!("a fault")), LOST);
        let closed = CommError::Closed { rank: 1 };
        assert_eq!(fail(&|| crate::comm::CommFailure::unwind(closed.clone())), LOST);
        // Each rank waits for a call of its own.
        let differ = code_of_ranks(|comms| {
            let site = Site::new("test");
            match comms.rank() {
                0 => Ok(comms.world().barrier(&site)?),
                _ => Ok(comms.world().all_gather_texts(&site, "").map(drop)?),
            }
        });
        assert_eq!(differ, exit_code::FAILS_AGAIN);
    }

    #[test]
    fn exits_of_other_processes_pass_their_code_on() {
        let failed = RankExit::Failed { error: "diverged".into(), code: exit_code::FAILS_AGAIN };
        for (exit, code) in [(failed, exit_code::FAILS_AGAIN), (RankExit::Lost, LOST)] {
            let (call, detail) = ("barrier".into(), String::new());
            let error = Error::Comm(CommError::PeerLeft { rank: 1, exit, call, detail });
            assert_eq!(error.exit_code(), code);
            let nested = Error::of_export(error, "it is lost".into());
            assert_eq!(nested.exit_code(), code);
        }
    }

    #[test]
    fn files_have_the_exit_code_of_their_reason() {
        let of_checkpoint = |number: i32| {
            let source = io::Error::from_raw_os_error(number);
            let (action, path) = ("write", PathBuf::from("out"));
            let source = Box::new(CheckpointError::Io { action, path, source });
            let older = PathBuf::from("step-1");
            let error = CheckpointError::Unreadable { source, older };
            Error::Checkpoint { flag: "--save", error }.exit_code()
        };
        assert_eq!(of_checkpoint(libc::EIO), LOST);
        assert_eq!(of_checkpoint(libc::EACCES), exit_code::REFUSED);
        let (path, reason) = (PathBuf::from("out"), "torn".to_owned());
        let damaged = CheckpointError::Damaged { path, reason };
        let damaged = Error::Checkpoint { flag: "--resume", error: damaged };
        assert_eq!(damaged.exit_code(), exit_code::REFUSED);
    }
}
