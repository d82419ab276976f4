//! Files that may be pipes. Opening a pipe waits for its other end; here for a limited time, so that a missing program
//! is reported.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time for another program to open the other end of a pipe: a shell may start it later.
const PATIENCE: Duration = Duration::from_secs(2);
const POLL_EVERY: Duration = Duration::from_millis(5);

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
pub fn is_pipe(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|data| data.file_type().is_fifo())
}

/// Calls `attempt` until it returns something, for a limited time.
pub fn retry<T>(mut attempt: impl FnMut() -> io::Result<Option<T>>) -> io::Result<Option<T>> {
    let start = Instant::now();
    loop {
        let found = attempt()?;
        if found.is_some() || start.elapsed() > PATIENCE {
            return Ok(found);
        }
        sleep(POLL_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Write};
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;
    use crate::input_file::{InputFile, read_text};

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
}
