//! Files that are read from start to end, which may be pipes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::pipes::{is_pipe, retry};

/// Most bytes of a text: of settings, schedules and times, which are far shorter.
const MAX_TEXT: u64 = 64 << 20;

/// A file or a pipe that is open for reading.
#[derive(Debug)]
pub struct InputFile {
    file: File,
    /// The first byte, which was read to see if there are any.
    first: Option<u8>,
    /// Most bytes that are read of a file of the system: it says that it is empty, and may have no end.
    limit: Option<u64>,
}

impl InputFile {
    /// Opens the file at `path`; a pipe, once it has a writer.
    ///
    /// # Errors
    /// A file that cannot be opened, and a pipe to which no program writes.
    pub fn open(path: &Path) -> io::Result<InputFile> {
        let metadata = fs::metadata(path)?;
        if metadata.is_file() && metadata.len() == 0 {
            return InputFile::open_empty(path);
        }
        if !is_pipe(path) {
            return Ok(InputFile { file: File::open(path)?, first: None, limit: None });
        }
        let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        let mut byte = [0];
        let first = retry(|| match file.read(&mut byte) {
            // There is no writer yet, or none any more.
            Ok(0) => Ok(None),
            Ok(_) => Ok(Some(Some(byte[0]))),
            // There is one, which has not written yet.
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Some(None)),
            Err(error) => Err(error),
        })?;
        let no_writer =
            "it is a pipe to which no program writes; start the writer first, or use a file";
        let first = first.ok_or_else(|| io::Error::other(no_writer))?;
        block_on_use(&file)?;
        Ok(InputFile { file, first, limit: None })
    }

    /// Opens a file of length 0, which files of the system have too, such as the files in `/proc`. They are read
    /// without waiting.
    fn open_empty(path: &Path) -> io::Result<InputFile> {
        let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        let mut byte = [0];
        let count = file.read(&mut byte).map_err(explain_endless)?;
        Ok(InputFile { file, first: (count > 0).then_some(byte[0]), limit: Some(MAX_TEXT) })
    }

    /// Returns the file. Nothing has been read from it, unless it is a pipe.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the file.
    pub fn into_file(self) -> File {
        self.file
    }

    /// Reads the whole file, of at most `limit` bytes.
    ///
    /// # Errors
    /// A file that cannot be read, and one that is longer, such as a device without an end.
    pub fn read_limited(self, limit: u64) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        self.take(limit + 1).read_to_end(&mut content)?;
        if content.len() as u64 > limit {
            let mebibytes = limit >> 20;
            return Err(io::Error::other(format!(
                "it has more than {mebibytes} MiB, and is probably another file"
            )));
        }
        Ok(content)
    }
}

impl Read for InputFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match (self.first, buffer.first_mut()) {
            (Some(byte), Some(target)) => {
                *target = byte;
                self.first = None;
                Ok(1)
            }
            _ => {
                let count = self.file.read(buffer).map_err(explain_endless)?;
                if let Some(limit) = &mut self.limit {
                    *limit = limit.checked_sub(count as u64).ok_or_else(endless)?;
                }
                Ok(count)
            }
        }
    }
}

fn endless() -> io::Error {
    io::Error::other("it is a file of the system without an end; copy what is needed to a file")
}

/// Explains an error of a file that waits for further content.
fn explain_endless(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::WouldBlock { endless() } else { error }
}

/// Reads the text at `path`: of a file, or of a pipe once it has a writer. Programs read their text inputs by it.
///
/// # Errors
/// A file that cannot be opened or read, a pipe to which no program writes, text that is not UTF-8, and more than 64
/// MiB.
pub fn read_text(path: &Path) -> io::Result<String> {
    let content = InputFile::open(path)?.read_limited(MAX_TEXT)?;
    let not_utf8 = || io::Error::new(ErrorKind::InvalidData, "it is not UTF-8 text");
    String::from_utf8(content).map_err(|_| not_utf8())
}

/// Makes reads and writes of a file wait, after it was opened without waiting.
fn block_on_use(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the call takes no pointers. No other flag of the status was set.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, 0) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_files_are_refused() {
        let text = read_text(Path::new("/dev/zero")).unwrap_err().to_string();
        assert_eq!(text, "it has more than 64 MiB, and is probably another file");
        // One that says that it is empty.
        let zeros = File::open("/dev/zero").unwrap();
        let zeros = InputFile { file: zeros, first: None, limit: Some(1000) };
        let text = zeros.read_limited(1 << 40).unwrap_err().to_string();
        assert!(text.starts_with("it is a file of the system without an end"), "{text}");
        // Its reader waits for the next message.
        let log = InputFile::open(Path::new("/proc/kmsg"));
        if let Err(error) = log.and_then(|log| log.read_limited(1 << 40)) {
            let is_denied = error.kind() == ErrorKind::PermissionDenied;
            assert!(is_denied || error.to_string().contains("without an end"), "{error}");
        }
    }

    #[test]
    fn files_of_the_system_are_read() {
        assert!(read_text(Path::new("/proc/self/status")).unwrap().starts_with("Name:"));
        let empty = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(read_text(empty.path()).unwrap(), "");
    }
}
