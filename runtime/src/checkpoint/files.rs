//! File-system steps that survive a crash: data reaches the disk before the name that shows it.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use super::CheckpointError;

/// Creates a folder and its parents; an existing one is fine.
pub fn create_folder(path: &Path) -> Result<(), CheckpointError> {
    let created = match fs::create_dir_all(path) {
        Err(_) if path.is_file() => Err(std::io::Error::other(no_folder(path))),
        other => other,
    };
    created.map_err(CheckpointError::io("create", path))
}

/// Writes a new file and brings it to the disk.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), CheckpointError> {
    let mut file = File::create(path).map_err(CheckpointError::io("create", path))?;
    file.write_all(bytes).map_err(CheckpointError::io("write", path))?;
    file.sync_all().map_err(CheckpointError::io("write", path))
}

/// Renames, and brings the new name to the disk.
pub fn rename(from: &Path, to: &Path) -> Result<(), CheckpointError> {
    fs::rename(from, to).map_err(CheckpointError::io("create", to))?;
    match to.parent() {
        Some(folder) => sync_folder(folder),
        None => Ok(()),
    }
}

/// Brings the names in a folder to the disk.
pub fn sync_folder(path: &Path) -> Result<(), CheckpointError> {
    // The parent of a bare name is the empty path, which means the working folder.
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let sync = || File::open(path)?.sync_all();
    sync().map_err(CheckpointError::io("write", path))
}

/// Removes a file, a link or a whole folder; nothing there is fine.
pub fn remove(path: &Path) -> Result<(), CheckpointError> {
    let removed = match fs::symlink_metadata(path) {
        Err(error) => Err(error),
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
    };
    match removed {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(CheckpointError::io("remove", path)),
    }
}

/// Why `path`, which is no folder, cannot be read as one.
pub fn no_folder(path: &Path) -> &'static str {
    if path.exists() { "it is a file, not a folder" } else { "there is no such folder" }
}

/// The names in a folder, in no order.
pub fn names(path: &Path) -> Result<Vec<String>, CheckpointError> {
    let read = || -> std::io::Result<Vec<String>> {
        fs::read_dir(path)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    };
    read().map_err(CheckpointError::io("read", path))
}
