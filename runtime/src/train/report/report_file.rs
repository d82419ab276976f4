//! Open files to which the metrics of each step are added.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file of metrics that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{flag}: cannot {action} {}: {source}", path.display())]
pub struct MetricsError {
    /// The flag that names the file, or its folder.
    pub(super) flag: &'static str,
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl MetricsError {
    /// Returns a function that creates the error of an action.
    pub(super) fn of(
        flag: &'static str,
        action: &'static str,
        path: &Path,
    ) -> impl FnOnce(io::Error) -> MetricsError {
        let path = path.to_owned();
        move |source| MetricsError { flag, action, path, source }
    }
}

/// An open file, which is left as it is after a failure.
#[derive(Debug)]
pub struct ReportFile {
    flag: &'static str,
    path: PathBuf,
    file: File,
    has_failed: bool,
}

impl ReportFile {
    /// Takes a file that is opened for appending.
    pub fn new(flag: &'static str, path: PathBuf, file: File) -> ReportFile {
        ReportFile { flag, path, file, has_failed: false }
    }

    /// Adds the bytes that `encode` returns at the end; nothing, after a failure.
    ///
    /// # Errors
    /// Bytes that cannot be encoded or written.
    pub fn append(
        &mut self,
        encode: impl FnOnce() -> io::Result<Vec<u8>>,
    ) -> Result<(), MetricsError> {
        if self.has_failed {
            return Ok(());
        }
        let end = self.file.metadata().map(|data| data.len());
        let written = encode().and_then(|bytes| self.file.write_all(&bytes));
        if written.is_err() {
            self.has_failed = true;
            // Removes the part that fits on a full disk. A pipe has no length, and keeps it.
            let _ = end.and_then(|end| self.file.set_len(end));
        }
        written.map_err(MetricsError::of(self.flag, "write", &self.path))
    }
}
