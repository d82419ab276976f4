//! The folder of a run's checkpoints: its lock, its checks, and recovery after a failure.

use std::path::{Path, PathBuf};

use super::place::storage_of;
use super::storage::HeldFolder;
use super::{CheckpointError, Manifest, RunHistory, names};

/// The folder of a run's checkpoints. No other run can save there while this value exists, if the file system has
/// locks.
///
/// The first process of a run [prepares](Self::prepare) the folder, and the others only check that they can
/// [write](Self::check_writable) to it.
#[derive(Debug)]
pub struct CheckpointFolder {
    dir: PathBuf,
    _held: Box<dyn HeldFolder>,
}

impl CheckpointFolder {
    /// Locks `dir`, creating it if needed, recovers from a failure of an earlier run, and checks that checkpoints can
    /// be saved in it. Called at the start of a run, so that a bad folder is reported before any work could be lost.
    ///
    /// # Errors
    /// A folder that cannot be created or written to, that another run saves to, with a `latest` that is not a link or
    /// a step that is not a checkpoint, or on a file system without symbolic links.
    pub fn prepare(dir: &Path) -> Result<CheckpointFolder, CheckpointError> {
        let held = storage_of(dir)?.prepare(dir)?;
        Ok(CheckpointFolder { dir: dir.to_owned(), _held: held })
    }

    /// Checks that the process of `rank` can write to `dir`, creating it if needed.
    ///
    /// # Errors
    /// A folder that cannot be created or written to.
    pub fn check_writable(dir: &Path, rank: usize) -> Result<(), CheckpointError> {
        storage_of(dir)?.check_writable(dir, rank)
    }

    /// Returns the steps of the checkpoints in the folder that are not of `history`, in order: checkpoints of other
    /// runs and branches, and checkpoints whose manifest cannot be read.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn other_steps(&self, history: &RunHistory) -> Result<Vec<u64>, CheckpointError> {
        let steps = steps_in(&self.dir)?.into_iter();
        Ok(steps.filter(|step| !is_of_history(&self.dir, *step, history)).collect())
    }

    /// Checks that `best` can be replaced by a link, for a run that [keeps](super::Keep) that checkpoint.
    ///
    /// # Errors
    /// A file or folder of this name.
    pub fn check_best(&self) -> Result<(), CheckpointError> {
        storage_of(&self.dir)?.check_best(&self.dir)
    }

    /// Removes what a failed run has left incomplete, ignoring errors.
    pub fn abandon(&self) {
        abandon(&self.dir);
    }
}

/// Removes what a failure has left incomplete in `dir`, ignoring errors.
pub(super) fn abandon(dir: &Path) {
    if let Ok(storage) = storage_of(dir) {
        storage.abandon(dir);
    }
}

/// Returns the steps of all checkpoints in `dir`, in order.
pub(super) fn steps_in(dir: &Path) -> Result<Vec<u64>, CheckpointError> {
    let found = storage_of(dir)?.names_in(dir)?;
    let mut steps: Vec<u64> = found.iter().filter_map(|name| names::step_of(name)).collect();
    steps.sort_unstable();
    Ok(steps)
}

/// Returns true if the checkpoint of `step` in `dir` is of `history`.
pub(super) fn is_of_history(dir: &Path, step: u64, history: &RunHistory) -> bool {
    let found = Manifest::read_history(&dir.join(names::folder_name(step)));
    found.is_some_and(|found| history.contains(&found, step))
}

/// Returns the step of the checkpoint of the lowest validation loss in `dir`, to which `best` leads; `None` if there is
/// none, or it cannot be read.
pub fn best_step(dir: &Path) -> Option<u64> {
    storage_of(dir).ok()?.linked_step(dir, names::BEST).ok()?
}
