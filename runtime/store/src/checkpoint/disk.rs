//! Checkpoints on a file system: folders that are renamed when they are complete, and symbolic links.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::locate::{Located, locate};
use super::lock::{self, FolderLock};
use super::rank_files::{describe_rank_file, wait_for_rank_file};
use super::storage::{CheckpointAttempt, CheckpointStorage, HeldFolder, StoredShards};
use super::tensors::TensorFile;
use super::{CheckpointError, RankFile, SavedShard, TensorBox, files, names};

/// The file system.
#[derive(Debug)]
pub struct DiskStorage;

/// The lock of a folder, if its file system has locks.
#[derive(Debug)]
struct LockedFolder {
    _lock: Option<FolderLock>,
}

impl HeldFolder for LockedFolder {}

impl CheckpointStorage for DiskStorage {
    fn locate(&self, path: &Path) -> Result<Located, CheckpointError> {
        Ok(locate(path))
    }

    fn check_folder(&self, path: &Path) -> Result<(), CheckpointError> {
        files::check_folder(path)
    }

    fn names_in(&self, folder: &Path) -> Result<Vec<String>, CheckpointError> {
        files::file_names(folder)
    }

    fn read_text(&self, folder: &Path, name: &str, limit: u64) -> Result<Vec<u8>, CheckpointError> {
        files::read_text(&files::path_in(folder, name)?, limit)
    }

    fn linked_step(&self, dir: &Path, name: &str) -> Result<Option<u64>, CheckpointError> {
        let target = fs::read_link(dir.join(name)).ok();
        Ok(target.and_then(|target| names::step_of_path(&target)))
    }

    fn open_files(
        &self,
        folder: &Path,
        files: &[RankFile],
    ) -> Result<Vec<Box<dyn StoredShards>>, CheckpointError> {
        let open = |file: &RankFile| -> Result<Box<dyn StoredShards>, CheckpointError> {
            let path = files::path_in(folder, &file.name)?;
            Ok(Box::new(TensorFile::open_verified(&path, file.bytes, &file.xxh3)?))
        };
        files.iter().map(open).collect()
    }

    fn prepare(&self, dir: &Path) -> Result<Box<dyn HeldFolder>, CheckpointError> {
        files::create_folder(dir)?;
        let held = LockedFolder { _lock: FolderLock::acquire(dir, lock::CHECKPOINTS)? };
        check_link(dir, names::LATEST, "newest checkpoint")?;
        check_steps(dir)?;
        recover(dir)?;
        self.check_writable(dir, 0)?;
        check_links(dir)?;
        Ok(Box::new(held))
    }

    fn check_writable(&self, dir: &Path, rank: usize) -> Result<(), CheckpointError> {
        files::create_folder(dir)?;
        files::probe(&names::probe_path(dir, rank))
    }

    fn check_best(&self, dir: &Path) -> Result<(), CheckpointError> {
        check_link(dir, names::BEST, "checkpoint of the lowest validation loss")
    }

    fn abandon(&self, dir: &Path) {
        // The user has to see the failure instead; the next checkpoint, or the next run, retries.
        let _ = remove_temporaries(dir);
        // If both are there, the new checkpoint may not be on disk yet: the next one removes the replaced one.
        let _ = restore_replaced(dir);
    }

    fn begin(&self, dir: &Path, step: u64) -> Result<CheckpointAttempt, CheckpointError> {
        let attempt = CheckpointAttempt { dir: dir.to_owned(), step, token: String::new() };
        // Not created again: it may be missing because nothing is mounted there any more.
        if !dir.is_dir() {
            let reason = "its folder was there when the run began, and is missing now; move it back, or mount its file \
                          system";
            let error = io::Error::new(ErrorKind::NotFound, reason);
            return Err(CheckpointError::io_error("create", &temporary_of(&attempt))(error));
        }
        recover(dir)?;
        files::create_folder(&temporary_of(&attempt))?;
        Ok(attempt)
    }

    fn create_file(
        &self,
        attempt: &CheckpointAttempt,
        rank: usize,
    ) -> Result<(File, PathBuf, String), CheckpointError> {
        let name = names::rank_file(rank);
        let path = temporary_of(attempt).join(&name);
        let file = files::change("create", &path, || File::create(&path))?;
        Ok((file, path, name))
    }

    fn part_bytes(&self, _: usize, _: u64) -> Option<u64> {
        None
    }

    fn store_file(
        &self,
        attempt: &CheckpointAttempt,
        name: &str,
        (file, _): (&File, u64),
        _: &dyn Fn() -> bool,
    ) -> Result<(), CheckpointError> {
        files::change("write", &temporary_of(attempt).join(name), || file.sync_all())
    }

    fn describe_file(
        &self,
        attempt: &CheckpointAttempt,
        rank: usize,
        description: &[u8],
    ) -> Result<(), CheckpointError> {
        describe_rank_file(&temporary_of(attempt), rank, description)
    }

    fn wait_for_description(
        &self,
        attempt: &CheckpointAttempt,
        rank: usize,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<u8>>, CheckpointError> {
        wait_for_rank_file(&temporary_of(attempt), rank, is_cancelled)
    }

    fn complete(
        &self,
        attempt: &CheckpointAttempt,
        (manifest, hash): (&[u8], &str),
    ) -> Result<PathBuf, CheckpointError> {
        let (dir, temporary) = (&attempt.dir, temporary_of(attempt));
        files::write(&temporary.join(names::MANIFEST), manifest)?;
        files::write(&temporary.join(names::MANIFEST_HASH), format!("{hash}\n").as_bytes())?;
        files::sync_folder(&temporary)?;
        let folder = dir.join(names::folder_name(attempt.step));
        // A run that resumed before this step saves it a second time.
        let replaced = names::replaced_path(dir, attempt.step);
        if files::is_taken(&folder) {
            files::rename_path(&folder, &replaced)?;
        }
        files::rename_path(&temporary, &folder)?;
        self.link(dir, names::LATEST, attempt.step)?;
        if files::is_taken(&replaced) {
            remove_checkpoint(&replaced, &temporary)?;
        }
        Ok(folder)
    }

    /// Replaces the link atomically, so that there always is one.
    fn link(&self, dir: &Path, name: &str, step: u64) -> Result<(), CheckpointError> {
        let new_link = names::temporary_link(dir, name);
        files::remove_path(&new_link)?;
        files::create_link(&names::folder_name(step), &new_link)?;
        files::rename_path(&new_link, &dir.join(name))
    }

    fn remove(&self, dir: &Path, step: u64) -> Result<(), CheckpointError> {
        let folder = dir.join(names::folder_name(step));
        remove_checkpoint(&folder, &names::temporary_folder(dir, step))
    }
}

impl StoredShards for TensorFile {
    fn copy_shard(
        &self,
        shard: &SavedShard,
        out: &mut [f32],
        requested: &TensorBox,
    ) -> Result<usize, CheckpointError> {
        self.copy_common(&shard.key, &shard.tensor_box, out, requested)
    }
}

fn temporary_of(attempt: &CheckpointAttempt) -> PathBuf {
    names::temporary_folder(&attempt.dir, attempt.step)
}

/// Brings `dir` into order after a failure: removes incomplete checkpoints, and moves a replaced one back to its place
/// if the new one has not taken it.
fn recover(dir: &Path) -> Result<(), CheckpointError> {
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
fn remove_checkpoint(folder: &Path, temporary: &Path) -> Result<(), CheckpointError> {
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
    for step in files::file_names(dir)?.iter().filter_map(|name| names::step_of(name)) {
        let folder = dir.join(names::folder_name(step));
        let found = if folder.is_dir() { files::file_names(&folder)? } else { Vec::new() };
        let has_files_of_rank = found.iter().any(|name| names::is_rank_file(name));
        let is_damaged = folder.is_dir() && (found.is_empty() || has_files_of_rank);
        if !is_damaged && !names::has_manifest(&folder) {
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
