//! The place of checkpoints: a file system or, behind a feature, object storage.

use std::path::Path;

use super::CheckpointError;
use super::disk::DiskStorage;
use super::storage::CheckpointStorage;

/// Beginnings of paths in object storage.
const SCHEMES: [&str; 3] = ["s3://", "gs://", "az://"];

/// Returns true for the URL of a folder in object storage.
pub fn is_remote(path: &Path) -> bool {
    path.to_str().is_some_and(|path| SCHEMES.iter().any(|scheme| path.starts_with(scheme)))
}

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
