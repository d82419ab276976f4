//! What can be wrong with a checkpoint or a folder of weights.

use std::path::{Path, PathBuf};

/// Differences that are listed one by one; of more, the number is told.
const LISTED: usize = 12;

/// Why a checkpoint cannot be written or read; each message names the file.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file is not what was written.
    #[error("{} is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// There is nothing to load.
    #[error("no checkpoint at {}: {reason}", path.display())]
    NotFound {
        /// Where was looked.
        path: PathBuf,
        /// What was expected there.
        reason: String,
    },
    /// No checkpoint of a folder is whole.
    #[error("no usable checkpoint in {}:{}", path.display(), listed(.tried))]
    NoneUsable {
        /// The folder.
        path: PathBuf,
        /// What is wrong with each, newest first.
        tried: Vec<CheckpointError>,
    },
    /// A tensor is not there, or not as the model needs it.
    #[error("{}: tensor `{name}` {reason}", path.display())]
    Tensor {
        /// The file or folder.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The tensors of a file or folder are not those of the model.
    #[error("the tensors of {} are not those of this model, which has other sizes or settings:{}", path.display(), listed(.differences))]
    OtherModel {
        /// The file or folder.
        path: PathBuf,
        /// Each missing and each unexpected tensor, and each of another shape.
        differences: Vec<String>,
    },
    /// The settings of a Hugging Face folder cannot be used.
    #[error("{}: {reason}", path.display())]
    Settings {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The ranks' shards do not make up the tensors: a fault of the code that names the entries.
    #[error("the shards of tensor `{name}` do not make it up: {reason}")]
    Shards {
        /// The tensor.
        name: String,
        /// What is wrong.
        reason: String,
    },
}

impl CheckpointError {
    /// Turns a system error into one that says what was tried on which path.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| CheckpointError::Io { action, path: path.to_owned(), source }
    }

    pub(super) fn damaged(path: &Path, reason: impl Into<String>) -> Self {
        CheckpointError::Damaged { path: path.to_owned(), reason: reason.into() }
    }

    pub(super) fn tensor(path: &Path, name: &str, reason: impl Into<String>) -> Self {
        let (path, name) = (path.to_owned(), name.to_owned());
        CheckpointError::Tensor { path, name, reason: reason.into() }
    }

    pub(super) fn settings(path: &Path, reason: impl Into<String>) -> Self {
        CheckpointError::Settings { path: path.to_owned(), reason: reason.into() }
    }
}

fn listed(items: &[impl std::fmt::Display]) -> String {
    let mut list: String = items.iter().take(LISTED).map(|item| format!("\n  - {item}")).collect();
    if items.len() > LISTED {
        list += &format!("\n  - and {} more", items.len() - LISTED);
    }
    list
}
