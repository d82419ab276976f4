//! Crash-safe file operations: data is synced before the name that makes it visible.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use super::CheckpointError;
use crate::data::{IS_LFS_POINTER, is_lfs_pointer};
use meshwright_os::{InputFile, hold_stops};

/// Most bytes of a JSON file that describes a model or the file of one rank.
pub const MAX_JSON_BYTES: u64 = 1 << 30;

/// Bytes that are read at a time.
const READ_BYTES: usize = 1 << 20;

/// Creates a folder and its parents, unless it exists.
pub fn create_folder(path: &Path) -> Result<(), CheckpointError> {
    change("create", path, || match fs::create_dir_all(path) {
        Err(_) if path.exists() && !path.is_dir() => Err(io::Error::other(no_folder_reason(path))),
        Err(error) => Err(dangling_link(path).unwrap_or(error)),
        Ok(()) => Ok(()),
    })
}

/// Writes and syncs a new file.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), CheckpointError> {
    let mut file = change("create", path, || File::create(path))?;
    change("write", path, || file.write_all(bytes))?;
    change("write", path, || file.sync_all())
}

/// Checks that a file can be written at `path`, and removes it, also if a signal stops the run.
pub fn probe(path: &Path) -> Result<(), CheckpointError> {
    hold_stops(|| {
        let written = write(path, b"");
        written.and(remove_path(path))
    })
}

/// Checks that a link can be created at `path`, and removes it, also if a signal stops the run.
pub fn probe_link(path: &Path) -> Result<(), CheckpointError> {
    hold_stops(|| {
        create_link("probe", path)?;
        remove_path(path)
    })
}

/// Creates a symbolic link at `path`, without syncing its name.
pub fn create_link(target: &str, path: &Path) -> Result<(), CheckpointError> {
    change("create", path, || std::os::unix::fs::symlink(target, path))
}

/// Renames a file or folder, and syncs the new name.
pub fn rename_path(from: &Path, to: &Path) -> Result<(), CheckpointError> {
    change("create", to, || fs::rename(from, to))?;
    match to.parent() {
        Some(folder) => sync_folder(folder),
        None => Ok(()),
    }
}

/// Syncs the names in a folder.
pub fn sync_folder(path: &Path) -> Result<(), CheckpointError> {
    // The parent of a bare name is the empty path, which means the working directory.
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    change("write", path, || File::open(path)?.sync_all())
}

/// Removes a file, a link or a whole folder, if it exists.
pub fn remove_path(path: &Path) -> Result<(), CheckpointError> {
    change("remove", path, || {
        let removed = match fs::symlink_metadata(path) {
            Err(error) => Err(error),
            Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
            Ok(_) => fs::remove_file(path),
        };
        match removed {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            other => other,
        }
    })
}

/// Checks that a file can be renamed to `path`, where no folder may be.
pub fn check_replaceable(path: &Path) -> Result<(), CheckpointError> {
    change("create", path, || match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => {
            Err(io::Error::other("it is a folder; remove or rename it, or name another place"))
        }
        _ => Ok(()),
    })
}

/// Returns true if there is a file, a folder or a link at `path`, even a link that leads nowhere.
pub fn is_taken(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// Returns the path of a file of the checkpoint in `folder`, which may be a link to another file in it, but to none
/// elsewhere.
pub fn path_in(folder: &Path, name: &str) -> Result<PathBuf, CheckpointError> {
    let path = folder.join(name);
    let failed = |error| CheckpointError::io_error("read", &path)(error);
    if path.is_symlink() {
        let (real, real_folder) = (path.canonicalize(), folder.canonicalize());
        if real.map_err(failed)?.parent() != Some(&real_folder.map_err(failed)?) {
            return Err(CheckpointError::damaged(&path, "it is a link out of its checkpoint"));
        }
    }
    Ok(path)
}

/// Opens a regular file for reading.
///
/// Other files are refused before they are opened. Inputs that are read once from start to end may be pipes
/// (`InputFile`); a checkpoint may not: its files are mapped, compared with the length and the hash in the manifest,
/// and read at any position. A FIFO has no positions and waits for a writer, and a device may have no end.
pub fn open_regular(path: &Path) -> Result<InputFile, CheckpointError> {
    let metadata = fs::metadata(path).map_err(CheckpointError::io_error("read", path))?;
    if !metadata.is_file() {
        return Err(CheckpointError::damaged(path, "it is not a regular file"));
    }
    InputFile::open(path).map_err(CheckpointError::io_error("read", path))
}

/// Reads a regular file of at most `limit` bytes of text, without a byte of value 0: so the empty part of a sparse
/// file, which may be of any length, is not read.
pub fn read_text(path: &Path, limit: u64) -> Result<Vec<u8>, CheckpointError> {
    let io = || CheckpointError::io_error("read", path);
    let mut file = open_regular(path)?;
    let length = file.file().metadata().map_err(io())?.len();
    if length > limit {
        return Err(CheckpointError::damaged(
            path,
            format!("it has {length} bytes, at most {limit} are read"),
        ));
    }
    let (mut content, mut chunk) = (Vec::new(), vec![0; READ_BYTES]);
    loop {
        let count = file.read(&mut chunk).map_err(io())?;
        let chunk = &chunk[..count];
        if chunk.is_empty() {
            refuse_lfs_pointer(path, &content)?;
            return Ok(content);
        }
        if chunk.contains(&0) {
            return Err(CheckpointError::damaged(path, "it has bytes of value 0, and is not text"));
        }
        content.extend_from_slice(chunk);
    }
}

/// Reads a regular file of at most `limit` bytes.
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>, CheckpointError> {
    let content = open_regular(path)?.read_limited(limit);
    let content = content.map_err(CheckpointError::io_error("read", path))?;
    refuse_lfs_pointer(path, &content)?;
    Ok(content)
}

/// Refuses the content of a file that stands for another one, which was not fetched.
pub fn refuse_lfs_pointer(path: &Path, content: &[u8]) -> Result<(), CheckpointError> {
    if is_lfs_pointer(content) {
        return Err(CheckpointError::settings(path, IS_LFS_POINTER));
    }
    Ok(())
}

/// Checks that `path` is a folder.
pub fn check_folder(path: &Path) -> Result<(), CheckpointError> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Err(CheckpointError::io_error("read", path)(error))
        }
        _ => Err(CheckpointError::not_found(path, no_folder_reason(path))),
    }
}

/// Returns the reason why `path`, which is not a folder, cannot be read as one.
pub fn no_folder_reason(path: &Path) -> &'static str {
    if path.exists() { "it is a file, not a folder" } else { "there is no such folder" }
}

/// Lists the names in a folder, in no order.
pub fn file_names(path: &Path) -> Result<Vec<String>, CheckpointError> {
    let read = || -> io::Result<Vec<String>> {
        fs::read_dir(path)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    };
    read().map_err(CheckpointError::io_error("read", path))
}

/// Runs an operation that changes the file system, and adds its name and path to an error.
pub fn change<T>(
    action: &'static str,
    path: &Path,
    operation: impl FnOnce() -> io::Result<T>,
) -> Result<T, CheckpointError> {
    #[cfg(any(test, feature = "faults"))]
    super::faults::count_operation().map_err(CheckpointError::io_error(action, path))?;
    operation().map_err(CheckpointError::io_error(action, path))
}

/// Returns an error that names the link in `path` that leads nowhere, if there is one: the system only reports that the
/// link exists.
fn dangling_link(path: &Path) -> Option<io::Error> {
    let is_dangling = |path: &&Path| path.is_symlink() && !path.exists();
    let link = path.ancestors().find(is_dangling)?;
    let (link, target) = (link.display(), fs::read_link(link).ok()?);
    Some(io::Error::other(format!(
        "{link} is a link to {}, which does not exist; create that folder or remove the link",
        target.display()
    )))
}
