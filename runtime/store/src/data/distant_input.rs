//! Objects of data that are opened, several of them at the same time.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;

use super::DataError;
use super::byte_source::ByteSource;
use super::format::HEAD_BYTES;
use super::objects::{is_object, open_object};
use super::token_layout::{self, has_index, tokens_of_index};

/// Objects that are opened at the same time: each takes some requests, one after the other.
const TOGETHER: usize = 16;

/// An object that is opened.
pub struct DistantInput {
    /// The path, which may be another one than was named: that of the ids of Megatron.
    pub path: PathBuf,
    /// The first bytes.
    pub head: Vec<u8>,
    pub source: Box<dyn ByteSource>,
    /// True if there is an object beside it with the extension `.idx`.
    pub has_index: bool,
}

impl DistantInput {
    /// Opens objects, and returns them in order.
    pub fn open_all(paths: &[&Path]) -> Vec<Result<DistantInput, DataError>> {
        let open_some = |paths: &[&Path]| -> Vec<_> {
            thread::scope(|scope| {
                let open = |path| scope.spawn(move || DistantInput::open(path));
                let threads: Vec<_> = paths.iter().copied().map(open).collect();
                let join = |thread: thread::ScopedJoinHandle<'_, _>| thread.join();
                threads.into_iter().map(|thread| join(thread).expect("no panic")).collect()
            })
        };
        paths.chunks(TOGETHER).flat_map(open_some).collect()
    }

    /// Opens an object.
    ///
    /// # Errors
    /// An object that is missing or cannot be read.
    pub fn open(path: &Path) -> Result<DistantInput, DataError> {
        let mut index = path.as_os_str().to_owned();
        index.push(".idx");
        let source = match open_object(path) {
            Err(DataError::Io { source, .. })
                if source.kind() == ErrorKind::NotFound && is_object(index.as_ref())? =>
            {
                return DistantInput::open(index.as_ref());
            }
            opened => opened?,
        };
        // The layout of token ids follows from them.
        let first = 0..source.len().min(token_layout::HEAD_BYTES);
        source.prepare(std::slice::from_ref(&first));
        let head = source.part(0..first.end.min(HEAD_BYTES))?.into_owned();
        if let Some(tokens) = tokens_of_index(path, &head)? {
            return DistantInput::open(&tokens);
        }
        let has_index = has_index(path)?;
        Ok(DistantInput { path: path.to_owned(), head, source, has_index })
    }
}
