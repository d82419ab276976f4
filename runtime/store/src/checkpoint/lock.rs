//! Locks of folders: one run at a time saves its checkpoints in a folder, and one exports its model to it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::CheckpointError;

/// Name of the lock file of a folder of checkpoints.
pub const CHECKPOINTS: &str = ".lock";

/// Name of the lock file of an exported model, which may be in a folder of checkpoints of the same run.
pub const EXPORT: &str = ".export.lock";

/// Most bytes that are read of the description of the holder.
const MAX_HOLDER: u64 = 200;

/// An exclusive lock on a folder. The system releases it when the process ends, however that happens.
///
/// The file is removed with the lock, so that a folder of checkpoints holds nothing else between runs.
#[derive(Debug)]
pub struct FolderLock {
    file: File,
    path: PathBuf,
}

impl FolderLock {
    /// Locks `dir` by the lock file `name`. Returns `None` if its file system has no locks.
    ///
    /// # Errors
    /// [`CheckpointError::InUse`] if another process holds the lock, and a lock file that cannot be written.
    pub fn acquire(dir: &Path, name: &str) -> Result<Option<FolderLock>, CheckpointError> {
        let path = dir.join(name);
        loop {
            let mut options = OpenOptions::new();
            let opened = options.read(true).write(true).create(true).truncate(false).open(&path);
            let file = opened.map_err(CheckpointError::io_error("create", &path))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let (path, holder) = (dir.to_owned(), read_holder(&file));
                    return Err(CheckpointError::InUse { path, holder });
                }
                Err(TryLockError::Error(_)) => return Ok(None),
            }
            let lock = FolderLock { file, path: path.clone() };
            // A run that ends removes the file, perhaps after it was opened here. Such a lock excludes no other run.
            if lock.is_at_path() {
                lock.write_holder().map_err(CheckpointError::io_error("write", &path))?;
                return Ok(Some(lock));
            }
        }
    }

    /// Returns true if the path of the lock file still leads to the locked file.
    fn is_at_path(&self) -> bool {
        let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let found = fs::symlink_metadata(&self.path).map(identity);
        found.is_ok_and(|found| self.file.metadata().map(identity).is_ok_and(|own| own == found))
    }

    fn write_holder(&self) -> io::Result<()> {
        self.file.set_len(0)?;
        (&self.file).write_all(format!("{}\n", this_process()).as_bytes())
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // Before the lock is released, as the file may be that of another run from then on.
        if self.is_at_path() {
            // A file that stays is used by the next run.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Describes this process: `process 12 on host-a`.
pub fn this_process() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = match host.trim() {
        "" => "a host without a name",
        host => host,
    };
    format!("process {} on {host}", std::process::id())
}

/// Returns the description of the run that holds the lock.
fn read_holder(file: &File) -> String {
    let mut bytes = Vec::new();
    // The message is useful without the description too.
    let _ = file.take(MAX_HOLDER).read_to_end(&mut bytes);
    match String::from_utf8_lossy(&bytes).trim() {
        "" => "a process that has just started".to_owned(),
        holder => holder.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(CHECKPOINTS);
        let lock = FolderLock::acquire(dir.path(), CHECKPOINTS).unwrap().unwrap();
        let text = FolderLock::acquire(dir.path(), CHECKPOINTS).unwrap_err().to_string();
        assert!(text.contains(&format!("process {} on ", std::process::id())), "{text}");
        drop(lock);
        assert!(!path.exists());
        // The file of a process that was killed: longer, and not locked.
        fs::write(&path, "process 1234567890 on a-host-with-a-long-name\n").unwrap();
        let lock = FolderLock::acquire(dir.path(), CHECKPOINTS).unwrap().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with(&format!("process {} on ", std::process::id())), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        drop(lock);
    }

    /// After its folder was cleared by hand, the lock of a run does not remove the file of the next one.
    #[test]
    fn a_removed_lock_file_is_not_removed_again() {
        let dir = tempfile::tempdir().unwrap();
        let first = FolderLock::acquire(dir.path(), CHECKPOINTS).unwrap().unwrap();
        fs::remove_file(dir.path().join(CHECKPOINTS)).unwrap();
        let second = FolderLock::acquire(dir.path(), CHECKPOINTS).unwrap().unwrap();
        drop(first);
        FolderLock::acquire(dir.path(), CHECKPOINTS).unwrap_err();
        drop(second);
        FolderLock::acquire(dir.path(), CHECKPOINTS).unwrap().unwrap();
    }
}
