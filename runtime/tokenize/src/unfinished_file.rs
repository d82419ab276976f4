//! A file that is written under a temporary name, and gets its own name when it is complete.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use meshwright_os::move_aside;

use meshwright_store::data::TokensRecord;

use super::TokenizeError;

/// End of the temporary name.
const SUFFIX: &str = ".partial";

/// A file under a temporary name, which is removed unless it is renamed. Its lock shows other processes that this one
/// runs.
pub struct UnfinishedFile {
    writer: BufWriter<File>,
    path: PathBuf,
    output: PathBuf,
    is_finished: bool,
}

impl UnfinishedFile {
    /// Creates a file in the folder of `output`, and removes those that ended processes have left of the same output.
    pub fn create(output: &Path) -> Result<UnfinishedFile, TokenizeError> {
        let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.exists()) {
            return Err(TokenizeError::NoFolder { folder: folder.to_owned() });
        }
        remove_abandoned(output);
        let mut name = prefix(output);
        name.push(format!("{}{SUFFIX}", std::process::id()));
        let path = output.with_file_name(name);
        let file = create_locked(&path)
            .map_err(|source| TokenizeError::Write { path: output.to_owned(), source })?;
        let writer = BufWriter::with_capacity(1 << 20, file);
        Ok(UnfinishedFile { writer, path, output: output.to_owned(), is_finished: false })
    }

    /// Writes the bytes of ids.
    pub fn write_ids(&mut self, bytes: &[u8]) -> Result<(), TokenizeError> {
        self.writer.write_all(bytes).map_err(|source| self.error(source))
    }

    /// Completes and renames the file, and writes its record beside it. Returns the path to which earlier content of
    /// the output was moved, with its record.
    pub fn finish_file(mut self, record: &TokensRecord) -> Result<Option<PathBuf>, TokenizeError> {
        let rename = |this: &mut UnfinishedFile| {
            this.writer.flush()?;
            this.writer.get_ref().sync_all()?;
            let own_record = TokensRecord::path_beside(&this.output);
            let moved = move_aside(&this.output)?;
            match &moved {
                Some(moved) if own_record.exists() => {
                    fs::rename(&own_record, TokensRecord::path_beside(moved))?;
                }
                _ => {}
            }
            fs::rename(&this.path, &this.output)?;
            this.is_finished = true;
            let text = serde_json::to_string_pretty(record)? + "\n";
            // The temporary name is free again.
            fs::write(&this.path, text)?;
            fs::rename(&this.path, own_record).map(|()| moved)
        };
        rename(&mut self).map_err(|source| self.error(source))
    }

    fn error(&self, source: io::Error) -> TokenizeError {
        TokenizeError::Write { path: self.output.clone(), source }
    }
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        if !self.is_finished {
            // The rest is hidden, and not taken for data by any run.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns the temporary name up to the number of the process.
fn prefix(output: &Path) -> OsString {
    let mut name = OsString::from(".");
    name.push(output.file_name().unwrap_or_default());
    name.push(".");
    name
}

/// Creates a file and locks it, if its file system has locks.
fn create_locked(path: &Path) -> io::Result<File> {
    loop {
        let file = File::create(path)?;
        let _ = file.try_lock();
        // Another process may have removed it before it was locked.
        let own = file.metadata()?.ino();
        if fs::symlink_metadata(path).is_ok_and(|found| found.ino() == own) {
            return Ok(file);
        }
    }
}

/// Removes the temporary files of an output whose processes have ended, ignoring errors.
fn remove_abandoned(output: &Path) {
    let folder = match output.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let prefix = prefix(output);
    let is_temporary = |name: &OsStr| {
        let rest = name.as_bytes().strip_prefix(prefix.as_bytes());
        let process = rest.and_then(|rest| rest.strip_suffix(SUFFIX.as_bytes()));
        process.is_some_and(|process| {
            !process.is_empty() && process.iter().all(|byte| byte.is_ascii_digit())
        })
    };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if !is_file || !is_temporary(&entry.file_name()) {
            continue;
        }
        // A process that writes it has locked it.
        let file = OpenOptions::new().write(true).open(entry.path());
        if file.is_ok_and(|file| file.try_lock().is_ok()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}
