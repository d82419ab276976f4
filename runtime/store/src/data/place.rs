//! The place of files of data: a file system or, behind a feature, object storage.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::ops::Range;
use std::path::Path;

use super::DataError;
use super::byte_source::ByteSource;
use super::objects;

/// Beginnings of paths in object storage.
const SCHEMES: [&str; 3] = ["s3://", "gs://", "az://"];

/// Bytes of a stream that are fetched together.
const FETCHED: usize = 8 << 20;

/// Bytes of a stream that are read together.
const READ: usize = 256 << 10;

/// Returns true for the URL of an object, or of a folder of objects, in object storage.
pub fn is_remote(path: &Path) -> bool {
    path.to_str().is_some_and(|path| SCHEMES.iter().any(|scheme| path.starts_with(scheme)))
}

/// Returns true if `path` is a file or an object.
///
/// # Errors
/// Object storage that does not answer.
pub fn is_file(path: &Path) -> Result<bool, DataError> {
    if is_remote(path) { objects::is_object(path) } else { Ok(path.is_file()) }
}

/// Reads a small file; `None` if there is none.
pub fn read_if_any(path: &Path) -> io::Result<Option<Vec<u8>>> {
    if is_remote(path) {
        return objects::read_object(path);
    }
    match fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Opens a file that is read from its beginning to its end. Returns its length, too.
pub fn open_reader(path: &Path) -> io::Result<(u64, Box<dyn Read>)> {
    if is_remote(path) {
        let source = objects::open_object(path).map_err(to_io)?;
        return Ok((source.len() as u64, Box::new(PartReader::new(source))));
    }
    let file = File::open(path)?;
    Ok((file.metadata()?.len(), Box::new(file)))
}

/// A reader of bytes that are far away.
pub struct PartReader {
    source: Box<dyn ByteSource>,
    /// The bytes that were read from the source and not returned.
    part: Vec<u8>,
    /// The place in them.
    at: usize,
    /// The bytes of the source that are to be read.
    rest: Range<usize>,
}

impl PartReader {
    /// Reads the source from its beginning.
    pub fn new(source: Box<dyn ByteSource>) -> PartReader {
        let rest = 0..source.len();
        PartReader { source, part: Vec::new(), at: 0, rest }
    }
}

impl Read for PartReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.at == self.part.len() && !self.rest.is_empty() {
            let start = self.rest.start;
            if start.is_multiple_of(FETCHED) {
                let fetched = start..self.rest.end.min(start + FETCHED);
                self.source.prepare(&[fetched]);
            }
            let end = self.rest.end.min(start + READ);
            self.part = self.source.part(start..end).map_err(to_io)?.into_owned();
            (self.at, self.rest.start) = (0, end);
        }
        let count = out.len().min(self.part.len() - self.at);
        out[..count].copy_from_slice(&self.part[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

/// Returns the error of the system, or one with the message.
fn to_io(error: DataError) -> io::Error {
    match error {
        DataError::Io { source, .. } => source,
        error => io::Error::new(ErrorKind::InvalidData, error),
    }
}
