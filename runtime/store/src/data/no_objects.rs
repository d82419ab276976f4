//! Replacement of `objects` in a program that is built without the feature `remote`.

use std::io::{Error as IoError, ErrorKind, Result as IoResult};
use std::path::{Path, PathBuf};

use super::DataError;
use super::byte_source::ByteSource;

fn not_built() -> IoError {
    let reason = "it is in object storage, and this program was built without support for it; build it with \
                  `--features remote`, or copy the data to a disk";
    IoError::new(ErrorKind::Unsupported, reason)
}

fn refuse<T>(path: &Path) -> Result<T, DataError> {
    Err(DataError::Io { path: path.to_owned(), source: not_built() })
}

/// Refuses an object.
pub fn open_object(path: &Path) -> Result<Box<dyn ByteSource>, DataError> {
    refuse(path)
}

/// Refuses an object.
pub fn is_object(path: &Path) -> Result<bool, DataError> {
    refuse(path)
}

/// Refuses an object.
pub fn read_object(_: &Path) -> IoResult<Option<Vec<u8>>> {
    Err(not_built())
}

/// Refuses a folder of objects.
pub fn list_objects(folder: &Path, _: bool) -> Result<(Vec<PathBuf>, bool), DataError> {
    refuse(folder)
}
