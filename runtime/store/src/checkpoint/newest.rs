//! The newest checkpoint of a folder, for programs that watch a run.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Manifest, names};

/// The checkpoint to which the link `latest` of a folder leads. Its tensors have not been read.
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
        let name = fs::read_link(dir.join(names::LATEST)).ok()?;
        let (folder, step) = (dir.join(&name), names::step_of_path(&name)?);
        let run = Manifest::read_history(&folder)?.run;
        Some(NewestCheckpoint { folder, step, run })
    }
}
