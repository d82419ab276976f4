//! Objects that are read in parts, as long as they stay as they are.

use std::io::{Error as IoError, ErrorKind, Result};
use std::ops::Range;

use object_store::ObjectStoreExt;
use object_store::path::Path as Key;

use crate::bucket::{repeat_if_cut, runtime, wait_unless};
use crate::folder::ObjectFolder;
use crate::ranges::{ObjectState, changed, read_ranges};

/// An object of a bucket, in the state in which it was opened.
#[derive(Debug)]
pub struct OpenedObject {
    folder: ObjectFolder,
    key: Key,
    state: ObjectState,
}

impl OpenedObject {
    /// Opens the object of a URL, such as `s3://bucket/path/name`; `None` if there is none.
    ///
    /// # Errors
    /// As [`ObjectFolder::open`], and a request that fails.
    pub fn open(url: &str) -> Result<Option<OpenedObject>> {
        let (folder, name) = ObjectFolder::of_object(url)?;
        let key = folder.key(&name);
        match runtime().block_on(repeat_if_cut(|| folder.bucket.store.head(&key))) {
            Ok(meta) => Ok(Some(OpenedObject { state: ObjectState::of(&meta), folder, key })),
            // The answer names no reason: the object is missing, or the bucket.
            Err(error) => match folder.io(error) {
                error if error.kind() == ErrorKind::NotFound => folder.get(&name, 0).map(|_| None),
                error => Err(error),
            },
        }
    }

    /// Returns the number of bytes.
    pub fn length(&self) -> u64 {
        self.state.length
    }

    /// Returns a text that differs for other content of the object.
    pub fn version(&self) -> &str {
        let ObjectState { tag, modified, .. } = &self.state;
        tag.as_deref().or(modified.as_deref()).unwrap_or_default()
    }

    /// Reads ranges of the object, several of them at the same time, until `is_cancelled` returns true.
    ///
    /// # Errors
    /// A request that fails; one of the kind `StaleNetworkFileHandle` if the object was replaced, `NotFound` if it was
    /// removed, and `Interrupted` if the read was cancelled.
    pub fn read(
        &self,
        ranges: &[Range<u64>],
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Vec<Vec<u8>>> {
        let bucket = (&*self.folder.bucket, &*self.folder.name);
        let read = read_ranges(bucket, &self.key, ranges, Some(&self.state));
        let failed = match wait_unless(read, is_cancelled) {
            Some(Ok(bytes)) => return Ok(bytes),
            Some(Err(error)) => error,
            None => return Err(IoError::new(ErrorKind::Interrupted, "the read was cancelled")),
        };
        let is_unclear = !matches!(
            failed.kind(),
            ErrorKind::StaleNetworkFileHandle | ErrorKind::NotFound | ErrorKind::PermissionDenied
        );
        // A range beyond the end of a shorter object is one reason of services to refuse a read.
        let store = &self.folder.bucket.store;
        if is_unclear
            && let Some(Ok(now)) = wait_unless(store.head(&self.key), is_cancelled)
            && ObjectState::of(&now) != self.state
        {
            return Err(changed());
        }
        Err(failed)
    }
}
