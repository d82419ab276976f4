//! The newest checkpoint of a folder, for programs that watch a run.

use std::path::{Path, PathBuf};

use super::place::storage_of;
use super::{Manifest, names};

/// The newest checkpoint of a folder whose manifest can be read. Its tensors have not been read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewestCheckpoint {
    /// The folder of the checkpoint.
    pub folder: PathBuf,
    /// Completed steps.
    pub step: u64,
    /// Identifier of the run that has saved it.
    pub run: String,
}

impl NewestCheckpoint {
    /// Finds the newest checkpoint in `dir`: the one to which `latest` leads, or if that is damaged, the last one that
    /// is not; `None` if there is none with a manifest.
    pub fn find(dir: &Path) -> Option<NewestCheckpoint> {
        let storage = storage_of(dir).ok()?;
        let linked = storage.linked_step(dir, names::LATEST).ok().flatten();
        let read = |step: u64| {
            let folder = dir.join(names::folder_name(step));
            let run = Manifest::read_history(&folder)?.run;
            Some(NewestCheckpoint { folder, step, run })
        };
        linked.and_then(read).or_else(|| {
            let names = storage.names_in(dir).unwrap_or_default();
            let mut steps: Vec<u64> =
                names.iter().filter_map(|name| names::step_of(name)).collect();
            steps.sort_unstable_by(|a, b| b.cmp(a));
            steps.into_iter().find_map(read)
        })
    }
}
