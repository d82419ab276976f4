//! The newest checkpoint of a folder, for programs that watch a run.

use std::path::{Path, PathBuf};

use super::place::storage_of;
use super::{Manifest, names};

/// The checkpoint to which `latest` of a folder leads. Its tensors have not been read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewestCheckpoint {
    /// Its folder.
    pub folder: PathBuf,
    /// Completed steps.
    pub step: u64,
    /// Identifier of the run that has saved it.
    pub run: String,
}

impl NewestCheckpoint {
    /// Finds the newest checkpoint in `dir`; `None` if there is none with a manifest.
    pub fn find(dir: &Path) -> Option<NewestCheckpoint> {
        let step = storage_of(dir).ok()?.linked_step(dir, names::LATEST).ok()??;
        let folder = dir.join(names::folder_name(step));
        let run = Manifest::read_history(&folder)?.run;
        Some(NewestCheckpoint { folder, step, run })
    }
}
