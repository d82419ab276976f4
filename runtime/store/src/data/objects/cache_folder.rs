//! The folder of this process in which ranges of objects are kept.

use std::env;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use meshwright_os::effective_user;

use crate::data::DataError;

use super::range_cache::RangeCache;

/// Most bytes of the cache, if no number is given.
const DEFAULT_BYTES: u64 = 10_000_000_000;

static CACHE: Mutex<Option<Arc<RangeCache>>> = Mutex::new(None);

/// Sets the folder in which this process keeps ranges of data in object storage, and its size in bytes. Processes and
/// runs may share it. By default it is a folder of the user among the temporary files of the system, with 10 GB.
///
/// # Errors
/// A folder that cannot be created or written to.
pub fn use_data_cache(folder: Option<&Path>, bytes: Option<u64>) -> Result<(), DataError> {
    let cache = open(folder, bytes.unwrap_or(DEFAULT_BYTES))?;
    *CACHE.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(cache));
    Ok(())
}

/// Returns the cache of this process.
///
/// # Errors
/// As [`use_data_cache`].
pub fn data_cache() -> Result<Arc<RangeCache>, DataError> {
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(cache) = &*cache {
        return Ok(Arc::clone(cache));
    }
    Ok(Arc::clone(cache.insert(Arc::new(open(None, DEFAULT_BYTES)?))))
}

fn open(folder: Option<&Path>, bytes: u64) -> Result<RangeCache, DataError> {
    let (folder, opened) = match folder {
        Some(folder) => (folder.to_owned(), Ok(())),
        None => own_folder(),
    };
    let opened = opened.and_then(|()| RangeCache::open(&folder, bytes));
    opened.map_err(|source| DataError::Cache { path: folder, source })
}

/// Creates a folder of this user, which others cannot write to.
fn own_folder() -> (PathBuf, io::Result<()>) {
    let user = effective_user();
    let folder = env::temp_dir().join(format!("meshwright-data-{user}"));
    let create = || match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let found = fs::symlink_metadata(&folder)?;
            if found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0 {
                return Ok(());
            }
            let reason = "it is not a folder that only this user can open; remove it, or name another one by \
                          --data-cache DIR";
            Err(io::Error::new(ErrorKind::PermissionDenied, reason))
        }
        created => created,
    };
    let created = create();
    (folder, created)
}
