//! Data in object storage: objects that are read by ranges, which are kept on a disk.

mod cache_folder;
mod object_bytes;
mod range_cache;
mod range_reader;
mod segment;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

use meshwright_remote::{ObjectFolder, OpenedObject};

use super::DataError;
use super::byte_source::ByteSource;
use cache_folder::data_cache;
use object_bytes::ObjectBytes;

pub use cache_folder::use_data_cache;

/// Most bytes of an object that is read as a whole, such as the record beside a file of tokens.
const MAX_WHOLE: u64 = 16 << 20;

/// Opens an object, which is read by ranges.
///
/// # Errors
/// An object that does not exist or cannot be read, and a folder for its ranges that cannot be written.
pub fn open_object(path: &Path) -> Result<Box<dyn ByteSource>, DataError> {
    let io = |source| DataError::Io { path: path.to_owned(), source };
    let object = OpenedObject::open(url(path)).map_err(io)?.ok_or_else(|| {
        let reason =
            "there is no such object; correct the path, or end that of a folder with a slash";
        io(io::Error::new(io::ErrorKind::NotFound, reason))
    })?;
    Ok(Box::new(ObjectBytes::new(path, object, data_cache()?)))
}

/// Returns true if there is an object of this path.
///
/// # Errors
/// A request that fails.
pub fn is_object(path: &Path) -> Result<bool, DataError> {
    let found = OpenedObject::open(url(path));
    Ok(found.map_err(|source| DataError::Io { path: path.to_owned(), source })?.is_some())
}

/// Reads a small object; `None` if there is none.
///
/// # Errors
/// A request that fails, and an object that is not small.
pub fn read_object(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let (folder, name) = ObjectFolder::of_object(url(path))?;
    Ok(folder.get(&name, MAX_WHOLE)?.map(|found| found.bytes.into()))
}

/// Lists the objects of a folder, also those of folders in it if `is_deep` is true, in no order. Returns true, too, if
/// there are folders in it that are left out.
///
/// # Errors
/// A request that fails.
pub fn list_objects(folder: &Path, is_deep: bool) -> Result<(Vec<PathBuf>, bool), DataError> {
    let list = || -> io::Result<(Vec<String>, bool)> {
        let opened = ObjectFolder::open(url(folder))?;
        if is_deep {
            return Ok((opened.list()?.into_iter().map(|(name, _)| name).collect(), false));
        }
        opened.list_direct()
    };
    let (names, has_folders) =
        list().map_err(|source| DataError::Io { path: folder.to_owned(), source })?;
    // An object with the name of the folder marks an empty one.
    let names = names.into_iter().filter(|name| !name.is_empty());
    Ok((names.map(|name| folder.join(name)).collect(), has_folders))
}

/// Returns a path that begins with a scheme, which is UTF-8, as a URL.
fn url(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}
