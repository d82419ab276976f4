//! The place of checkpoints: a file system or, behind a feature, object storage.

use std::path::Path;

use crate::data::is_remote;

use super::CheckpointError;
use super::disk::DiskStorage;
use super::storage::CheckpointStorage;

/// Returns the storage that has `path`.
///
/// # Errors
/// Object storage, in a program that was built without support for it.
pub fn storage_of(path: &Path) -> Result<&'static dyn CheckpointStorage, CheckpointError> {
    if is_remote(path) { object_storage(path) } else { Ok(&DiskStorage) }
}

#[cfg(feature = "remote")]
fn object_storage(_: &Path) -> Result<&'static dyn CheckpointStorage, CheckpointError> {
    Ok(&super::objects::ObjectStorage)
}

#[cfg(not(feature = "remote"))]
fn object_storage(path: &Path) -> Result<&'static dyn CheckpointStorage, CheckpointError> {
    Err(CheckpointError::settings(
        path,
        "it is in object storage, and this program was built without support for it; build it with `--features \
         remote`, or name a folder",
    ))
}
