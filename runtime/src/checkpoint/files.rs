//! Crash-safe file operations: data is synced before the name that makes it visible.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use super::CheckpointError;

/// Creates a folder and its parents, unless it exists.
pub fn create_folder(path: &Path) -> Result<(), CheckpointError> {
    let created = match fs::create_dir_all(path) {
        Err(_) if path.is_file() => Err(std::io::Error::other(no_folder_reason(path))),
        other => other,
    };
    created.map_err(CheckpointError::io_error("create", path))
}

/// Writes and syncs a new file.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), CheckpointError> {
    let mut file = File::create(path).map_err(CheckpointError::io_error("create", path))?;
    file.write_all(bytes).map_err(CheckpointError::io_error("write", path))?;
    file.sync_all().map_err(CheckpointError::io_error("write", path))
}

/// Renames a file or folder, and syncs the new name.
pub fn rename_path(from: &Path, to: &Path) -> Result<(), CheckpointError> {
    fs::rename(from, to).map_err(CheckpointError::io_error("create", to))?;
    match to.parent() {
        Some(folder) => sync_folder(folder),
        None => Ok(()),
    }
}

/// Syncs the names in a folder.
pub fn sync_folder(path: &Path) -> Result<(), CheckpointError> {
    // The parent of a bare name is the empty path, which means the working directory.
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let sync = || File::open(path)?.sync_all();
    sync().map_err(CheckpointError::io_error("write", path))
}

/// Removes a file, a link or a whole folder, if it exists.
pub fn remove_path(path: &Path) -> Result<(), CheckpointError> {
    let removed = match fs::symlink_metadata(path) {
        Err(error) => Err(error),
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
    };
    match removed {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(CheckpointError::io_error("remove", path)),
    }
}

/// Returns the reason why `path`, which is not a folder, cannot be read as one.
pub fn no_folder_reason(path: &Path) -> &'static str {
    if path.exists() { "it is a file, not a folder" } else { "there is no such folder" }
}

/// Lists the names in a folder, in no order.
pub fn file_names(path: &Path) -> Result<Vec<String>, CheckpointError> {
    let read = || -> std::io::Result<Vec<String>> {
        fs::read_dir(path)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    };
    read().map_err(CheckpointError::io_error("read", path))
}
