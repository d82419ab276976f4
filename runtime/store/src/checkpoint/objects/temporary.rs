//! Temporary files of this machine, which have no name: they end with the process, however that ends.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::checkpoint::CheckpointError;

static FOLDER: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Sets the folder of this process in which files of checkpoints in object storage are kept while they are sent or
/// read. By default it is the system's folder of temporary files.
///
/// # Errors
/// A folder that cannot be created or written to.
pub fn use_cache_folder(folder: &Path) -> Result<(), CheckpointError> {
    std::fs::create_dir_all(folder).map_err(CheckpointError::io_error("create", folder))?;
    create_in(folder)?;
    *FOLDER.lock().unwrap_or_else(PoisonError::into_inner) = Some(folder.to_owned());
    Ok(())
}

/// Creates a temporary file.
pub fn temporary_file() -> Result<File, CheckpointError> {
    let folder = FOLDER.lock().unwrap_or_else(PoisonError::into_inner).clone();
    create_in(&folder.unwrap_or_else(std::env::temp_dir))
}

fn create_in(folder: &Path) -> Result<File, CheckpointError> {
    let created = tempfile::tempfile_in(folder);
    created.map_err(CheckpointError::io_error("create a temporary file in", folder))
}
