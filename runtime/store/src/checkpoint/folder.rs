//! The folder of a run's checkpoints: its lock, its checks, and recovery after a failure.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::lock::{self, FolderLock};
use super::{CheckpointError, Manifest, RunHistory, files, names};

/// The folder of a run's checkpoints. No other run can save there while this value exists, if the file system has
/// locks.
///
/// The first process of a run [prepares](Self::prepare) the folder, and the others only check that they can
/// [write](Self::check_writable) to it.
#[derive(Debug)]
pub struct CheckpointFolder {
    dir: PathBuf,
    _lock: Option<FolderLock>,
}

impl CheckpointFolder {
    /// Locks `dir`, creating it if needed, recovers from a failure of an earlier run, and checks that checkpoints can
    /// be saved in it. Called at the start of a run, so that a bad folder is reported before any work could be lost.
    ///
    /// # Errors
    /// A folder that cannot be created or written to, that another run saves to, with a `latest` that is not a link or
    /// a step that is not a checkpoint, or on a file system without symbolic links.
    pub fn prepare(dir: &Path) -> Result<CheckpointFolder, CheckpointError> {
        files::create_folder(dir)?;
        let folder = CheckpointFolder {
            _lock: FolderLock::acquire(dir, lock::CHECKPOINTS)?,
            dir: dir.to_owned(),
        };
        check_link(dir, names::LATEST, "newest checkpoint")?;
        check_steps(dir)?;
        recover(dir)?;
        CheckpointFolder::check_writable(dir, 0)?;
        check_links(dir)?;
        Ok(folder)
    }

    /// Checks that the process of `rank` can write to `dir`, creating it if needed.
    ///
    /// # Errors
    /// A folder that cannot be created or written to.
    pub fn check_writable(dir: &Path, rank: usize) -> Result<(), CheckpointError> {
        files::create_folder(dir)?;
        let probe = names::probe_path(dir, rank);
        files::probe(&probe)
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
        check_link(&self.dir, names::BEST, "checkpoint of the lowest validation loss")
    }

    /// Removes what a failed run has left incomplete, ignoring errors.
    pub fn abandon(&self) {
        abandon(&self.dir);
    }
}

/// Removes what a failure has left incomplete in `dir`, ignoring errors.
pub(super) fn abandon(dir: &Path) {
    // The user has to see the failure instead; the next checkpoint, or the next run, retries.
    let _ = remove_temporaries(dir);
    // If both are there, the new checkpoint may not be on disk yet: the next one removes the replaced one.
    let _ = restore_replaced(dir);
}

/// Returns the steps of all checkpoints in `dir`, in order.
pub(super) fn steps_in(dir: &Path) -> Result<Vec<u64>, CheckpointError> {
    let found = files::file_names(dir)?;
    let mut steps: Vec<u64> = found.iter().filter_map(|name| names::step_of(name)).collect();
    steps.sort_unstable();
    Ok(steps)
}

/// Returns true if the checkpoint of `step` in `dir` is of `history`.
pub(super) fn is_of_history(dir: &Path, step: u64, history: &RunHistory) -> bool {
    let found = Manifest::read_history(&dir.join(names::folder_name(step)));
    found.is_some_and(|found| history.contains(&found, step))
}

/// Brings `dir` into order after a failure: removes incomplete checkpoints, and moves a replaced one back to its place
/// if the new one has not taken it.
pub(super) fn recover(dir: &Path) -> Result<(), CheckpointError> {
    remove_temporaries(dir)?;
    restore_replaced(dir)?;
    for step in replaced_steps(dir)? {
        let replaced = names::replaced_path(dir, step);
        remove_checkpoint(&replaced, &names::temporary_folder(dir, step))?;
    }
    Ok(())
}

/// Removes a checkpoint, by way of the path `temporary`: under its own name, one that is partly removed would count as
/// complete.
pub(super) fn remove_checkpoint(folder: &Path, temporary: &Path) -> Result<(), CheckpointError> {
    files::rename_path(folder, temporary)?;
    files::remove_path(temporary)
}

fn remove_temporaries(dir: &Path) -> Result<(), CheckpointError> {
    for name in files::file_names(dir)?.iter().filter(|name| names::is_temporary(name)) {
        files::remove_path(&dir.join(name))?;
    }
    Ok(())
}

/// Moves replaced checkpoints back to their places, unless these are taken.
fn restore_replaced(dir: &Path) -> Result<(), CheckpointError> {
    for step in replaced_steps(dir)? {
        let folder = dir.join(names::folder_name(step));
        if !files::is_taken(&folder) {
            files::rename_path(&names::replaced_path(dir, step), &folder)?;
        }
    }
    Ok(())
}

fn replaced_steps(dir: &Path) -> Result<Vec<u64>, CheckpointError> {
    let found = files::file_names(dir)?;
    Ok(found.iter().filter_map(|name| names::replaced_step_of(name)).collect())
}

/// Checks that `name`, the link to the `target`, can be replaced by a link.
fn check_link(dir: &Path, name: &str, target: &str) -> Result<(), CheckpointError> {
    let link = dir.join(name);
    if link.is_symlink() || !files::is_taken(&link) {
        return Ok(());
    }
    let kind = if link.is_dir() { "folder" } else { "file" };
    let reason = format!(
        "{} is a {kind}, not the link to the {target}; tools that follow links make such copies. Remove it or, if it \
         is the only copy of its checkpoint, rename it to step-NNNNNNNN with the number of its step",
        link.display()
    );
    Err(CheckpointError::Unsuitable { path: dir.to_owned(), reason })
}

/// Checks that what has the name of a checkpoint is one, even if it is damaged: a new one of the same step replaces it.
fn check_steps(dir: &Path) -> Result<(), CheckpointError> {
    for step in steps_in(dir)? {
        let folder = dir.join(names::folder_name(step));
        let found = if folder.is_dir() { files::file_names(&folder)? } else { Vec::new() };
        let has_files_of_rank = found.iter().any(|name| names::is_rank_file(name));
        let is_damaged = folder.is_dir() && (found.is_empty() || has_files_of_rank);
        if !is_damaged && !Manifest::is_in(&folder) {
            let reason = format!(
                "{} has the name of a checkpoint, but was not saved by a run, and would be replaced; move it to \
                 another folder",
                folder.display()
            );
            return Err(CheckpointError::Unsuitable { path: dir.to_owned(), reason });
        }
    }
    Ok(())
}

/// Checks that the file system has symbolic links.
fn check_links(dir: &Path) -> Result<(), CheckpointError> {
    files::probe_link(&names::temporary_link(dir, names::LATEST)).map_err(|error| match &error {
        CheckpointError::Io { source, .. } if is_without_links(source.kind()) => {
            let reason = format!(
                "`latest` is a symbolic link, but {error}; name a folder on a file system with links"
            );
            CheckpointError::Unsuitable { path: dir.to_owned(), reason }
        }
        _ => error,
    })
}

/// Returns true for the errors with which a file system refuses a link in a folder that is otherwise writable.
fn is_without_links(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::PermissionDenied | ErrorKind::Unsupported)
}
