//! The bytes of a file of data, in memory or far away.

use std::borrow::Cow;
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

use memmap2::Mmap;

use super::DataError;

/// The bytes of a file, which are read at any place.
pub trait ByteSource: Debug + Send + Sync {
    /// Returns the number of bytes.
    fn len(&self) -> usize;

    /// Returns the bytes of a range, which is inside.
    ///
    /// # Errors
    /// A file that cannot be read.
    fn part(&self, range: Range<usize>) -> Result<Cow<'_, [u8]>, DataError>;

    /// Checks that the file can still be read as it was opened.
    ///
    /// # Errors
    /// A file that has become shorter.
    fn check_unchanged(&self) -> Result<(), DataError> {
        Ok(())
    }

    /// Returns true if a read takes long, and is to be [prepared](Self::prepare).
    fn is_distant(&self) -> bool {
        false
    }

    /// Fetches ranges that will be read, several of them at the same time. What cannot be fetched now is fetched when
    /// it is read, which returns the error.
    fn prepare(&self, _ranges: &[Range<usize>]) {}
}

/// Bytes of this machine.
#[derive(Debug)]
pub enum LocalBytes {
    /// The mapping, the file, whose length is checked again, and its path.
    Mapped(Mmap, File, PathBuf),
    Owned(Vec<u8>),
}

impl LocalBytes {
    /// Maps a regular file; `path` is its name in messages.
    pub fn map(file: File, path: PathBuf) -> io::Result<LocalBytes> {
        // SAFETY: the map is read only, and is read with its length of now. As for every mapped file, reading what
        // another program has cut off would end the process with a bus error; `check_unchanged` looks before every
        // batch, which leaves the moment in between.
        let map = unsafe { Mmap::map(&file) }?;
        Ok(LocalBytes::Mapped(map, file, path))
    }

    fn bytes(&self) -> &[u8] {
        match self {
            LocalBytes::Mapped(map, ..) => map,
            LocalBytes::Owned(bytes) => bytes,
        }
    }
}

impl ByteSource for LocalBytes {
    fn len(&self) -> usize {
        self.bytes().len()
    }

    fn part(&self, range: Range<usize>) -> Result<Cow<'_, [u8]>, DataError> {
        Ok(Cow::Borrowed(&self.bytes()[range]))
    }

    /// Reading the part that was cut off a mapped file would end the process.
    fn check_unchanged(&self) -> Result<(), DataError> {
        let LocalBytes::Mapped(map, file, path) = self else { return Ok(()) };
        let now = file.metadata().map_err(|source| DataError::Io { path: path.clone(), source })?;
        if now.len() < map.len() as u64 {
            let name = path.display().to_string();
            return Err(DataError::Shortened { name, bytes: map.len(), now: now.len() });
        }
        Ok(())
    }
}
