//! Errors of checkpoints and Hugging Face folders.

use std::path::{Path, PathBuf};

/// Most differences that a message lists.
const MAX_LISTED: usize = 12;

/// Reason why a checkpoint or folder cannot be written or read, with the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// An I/O error of the system.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation, as a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file that is truncated or altered.
    #[error("{} is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
    /// No checkpoint to load.
    #[error("no checkpoint at {}: {reason}", path.display())]
    NotFound {
        /// The given path.
        path: PathBuf,
        /// The expected content.
        reason: String,
    },
    /// A checkpoint that cannot be read, though it is not damaged, while there is an older one.
    #[error("{source}; remove the cause, or name an older checkpoint to continue from, such as {}", older.display())]
    Unreadable {
        /// The reason.
        source: Box<CheckpointError>,
        /// The next older checkpoint.
        older: PathBuf,
    },
    /// A checkpoint of another branch than the newest one, which is skipped for an older one of the same branch.
    #[error(
        "{} is of another branch of the run than the checkpoints after it; name it to continue from it",
        path.display()
    )]
    OtherBranch {
        /// The checkpoint.
        path: PathBuf,
    },
    /// A folder that another run saves to.
    #[error("another run saves in {} ({holder}); wait for its end, or name another folder", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
        /// The process of the other run.
        holder: String,
    },
    /// The log of a run that another supervisor has.
    #[error(
        "{} is that of another `meshwright run` ({holder}); wait for its end, or name another folder",
        log.display()
    )]
    Supervised {
        /// The log.
        log: PathBuf,
        /// The process of the other supervisor.
        holder: String,
    },
    /// A folder that cannot hold checkpoints.
    #[error("cannot save checkpoints in {}: {reason}", path.display())]
    Unsuitable {
        /// The folder.
        path: PathBuf,
        /// The problem and the fix.
        reason: String,
    },
    /// A folder without an intact checkpoint.
    #[error("no usable checkpoint in {}:{}", path.display(), bulleted(.tried))]
    NoneUsable {
        /// The folder.
        path: PathBuf,
        /// The problem of each, newest first.
        tried: Vec<CheckpointError>,
    },
    /// A tensor that is missing, or of another shape or dtype than the model needs.
    #[error("{}: tensor `{name}` {reason}", path.display())]
    Tensor {
        /// The file or folder.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// The problem.
        reason: String,
    },
    /// A file or folder whose tensors do not fit the model.
    #[error(
        "the tensors of {} do not fit this model, which has other sizes or settings:{}",
        path.display(),
        bulleted(.differences)
    )]
    OtherModel {
        /// The file or folder.
        path: PathBuf,
        /// Each missing and each unexpected tensor, and each of another shape.
        differences: Vec<String>,
    },
    /// A Hugging Face folder whose settings are not supported.
    #[error("{}: {reason}", path.display())]
    Settings {
        /// The file.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
    /// Shards that do not cover a tensor exactly: a fault of the code that names the entries.
    #[error("the shards of tensor `{name}` do not make it up: {reason}")]
    Shards {
        /// The tensor.
        name: String,
        /// The problem.
        reason: String,
    },
}

impl CheckpointError {
    /// Adds operation and path to a system error.
    pub(super) fn io_error(
        action: &'static str,
        path: &Path,
    ) -> impl FnOnce(std::io::Error) -> Self {
        move |source| CheckpointError::Io { action, path: path.to_owned(), source }
    }

    pub(super) fn damaged(path: &Path, reason: impl Into<String>) -> Self {
        CheckpointError::Damaged { path: path.to_owned(), reason: reason.into() }
    }

    pub(super) fn not_found(path: &Path, reason: impl Into<String>) -> Self {
        CheckpointError::NotFound { path: path.to_owned(), reason: reason.into() }
    }

    /// Returns true if a checkpoint is missing, truncated, altered or malformed, so that an older one is to be used.
    /// Other errors may be temporary, or have a cause that can be fixed.
    pub(super) fn is_damage(&self) -> bool {
        match self {
            CheckpointError::Io { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
            CheckpointError::Damaged { .. }
            | CheckpointError::NotFound { .. }
            | CheckpointError::Shards { .. } => true,
            _ => false,
        }
    }

    /// Returns true for an error of the system, such as a full disk, after which a later checkpoint may succeed.
    #[doc(hidden)]
    pub fn is_of_system(&self) -> bool {
        matches!(self, CheckpointError::Io { .. })
    }

    pub(super) fn tensor_error(path: &Path, name: &str, reason: impl Into<String>) -> Self {
        let (path, name) = (path.to_owned(), name.to_owned());
        CheckpointError::Tensor { path, name, reason: reason.into() }
    }

    pub(super) fn settings(path: &Path, reason: impl Into<String>) -> Self {
        CheckpointError::Settings { path: path.to_owned(), reason: reason.into() }
    }
}

fn bulleted(items: &[impl std::fmt::Display]) -> String {
    let mut list: String =
        items.iter().take(MAX_LISTED).map(|item| format!("\n  - {item}")).collect();
    if items.len() > MAX_LISTED {
        list += &format!("\n  - and {} more", items.len() - MAX_LISTED);
    }
    list
}
