//! Files that may be pipes. Opening a pipe waits for its other end; here for a limited time, so that a missing program is
//! reported.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time for another program to open the other end of a pipe: a shell may start it later.
const PATIENCE: Duration = Duration::from_secs(2);
const POLL_EVERY: Duration = Duration::from_millis(5);
/// Most bytes of a text: of settings, schedules and times, which are far shorter.
const MAX_TEXT: u64 = 64 << 20;

/// A file or a pipe that is open for reading.
#[derive(Debug)]
pub struct InputFile {
    file: File,
    /// The first byte of a pipe, which was read to see if it has a writer.
    first: Option<u8>,
}

impl InputFile {
    /// Opens the file at `path`; a pipe, once it has a writer.
    ///
    /// # Errors
    /// A file that cannot be opened, and a pipe to which no program writes.
    pub fn open(path: &Path) -> io::Result<InputFile> {
        if !is_pipe(path) {
            return Ok(InputFile { file: File::open(path)?, first: None });
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
        Ok(InputFile { file, first })
    }

    /// Returns the file of which nothing was read, if it is no pipe.
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
            _ => self.file.read(buffer),
        }
    }
}

/// Reads the text at `path`: of a file, or of a pipe once it has a writer. Programs read their text inputs by it.
///
/// # Errors
/// A file that cannot be opened or read, a pipe to which no program writes, text that is not UTF-8, and more than 64 MiB.
pub fn read_text(path: &Path) -> io::Result<String> {
    let content = InputFile::open(path)?.read_limited(MAX_TEXT)?;
    let not_utf8 = || io::Error::new(ErrorKind::InvalidData, "it is not UTF-8 text");
    String::from_utf8(content).map_err(|_| not_utf8())
}

/// Opens the file at `path` with `options`; a pipe for writing, once it has a reader.
///
/// # Errors
/// A file that cannot be opened, and a pipe that no program reads.
pub fn open_output(path: &Path, options: &OpenOptions) -> io::Result<File> {
    if !is_pipe(path) {
        return options.open(path);
    }
    let mut probing = OpenOptions::new();
    let probing = probing.write(true).custom_flags(libc::O_NONBLOCK);
    let probe = retry(|| match probing.open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
        Err(error) => Err(error),
    })?;
    let no_reader = "it is a pipe that no program reads; start the reader first, or use a file";
    // Open until the file is: the reader would end without a writer.
    let _probe = probe.ok_or_else(|| io::Error::other(no_reader))?;
    options.open(path)
}

/// Returns true for a pipe, with or without a name.
fn is_pipe(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|data| data.file_type().is_fifo())
}

/// Calls `attempt` until it returns something, for a limited time.
fn retry<T>(mut attempt: impl FnMut() -> io::Result<Option<T>>) -> io::Result<Option<T>> {
    let start = Instant::now();
    loop {
        let found = attempt()?;
        if found.is_some() || start.elapsed() > PATIENCE {
            return Ok(found);
        }
        sleep(POLL_EVERY);
    }
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
    use std::io::Write;
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;

    fn pipe(dir: &tempfile::TempDir) -> PathBuf {
        let path = dir.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
    }

    #[test]
    fn pipes_without_another_end_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = pipe(&dir);
        let text = InputFile::open(&path).unwrap_err().to_string();
        assert!(text.contains("a pipe to which no program writes"), "{text}");
        let text = open_output(&path, OpenOptions::new().write(true)).unwrap_err().to_string();
        assert!(text.contains("a pipe that no program reads"), "{text}");
    }

    #[test]
    fn pipes_connect_late_and_slow_programs() {
        let dir = tempfile::tempdir().unwrap();
        let path = pipe(&dir);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                sleep(20 * POLL_EVERY);
                let mut file = open_output(&path, OpenOptions::new().write(true)).unwrap();
                sleep(20 * POLL_EVERY);
                file.write_all(b"slow").unwrap();
                sleep(20 * POLL_EVERY);
                file.write_all(b" text").unwrap();
            });
            assert_eq!(read_text(&path).unwrap(), "slow text");
        });
    }

    #[test]
    fn files_are_opened_as_usual() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        let mut file = open_output(&path, OpenOptions::new().write(true).create(true)).unwrap();
        file.write_all(b"text").unwrap();
        assert_eq!(read_text(&path).unwrap(), "text");
        let missing = InputFile::open(&dir.path().join("none")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        assert_eq!(read_text(Path::new("/dev/null")).unwrap(), "");
    }

    #[test]
    fn endless_files_are_refused() {
        let text = read_text(Path::new("/dev/zero")).unwrap_err().to_string();
        assert_eq!(text, "it has more than 64 MiB, and is probably another file");
    }
}
