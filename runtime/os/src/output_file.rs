//! Files that a run writes, which an earlier run may have written, or another one may be writing.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::pipes::open_output;

/// A file that a run is going to write. If it exists, it is locked, and its content has been checked; nothing has been
/// changed.
///
/// The lock is one of the file, and not of a name: links and other spellings of the path lead to it too. The system
/// releases it when the process ends. Pipes and devices are not locked.
///
/// What is written is added at the end, so a file that another program shortens meanwhile gets no gap.
#[derive(Debug)]
pub struct ClaimedFile {
    path: PathBuf,
    /// The file, if there is a regular one.
    existing: Option<File>,
}

impl ClaimedFile {
    /// Claims the file at `path`. `check` refuses content that was not written by an earlier run; it is not called for
    /// an empty file.
    ///
    /// # Errors
    /// A folder, a file that cannot be opened, one to which another run writes, and the error of `check`.
    pub fn claim(
        path: &Path,
        check: impl FnOnce(&File) -> io::Result<()>,
    ) -> io::Result<ClaimedFile> {
        let path = path.to_owned();
        match fs::metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound && has_folder(&path) => {
                return Ok(ClaimedFile { path, existing: None });
            }
            Ok(data) if !data.is_file() && !data.is_dir() => {
                return Ok(ClaimedFile { path, existing: None });
            }
            found => found?,
        };
        let file = loop {
            let file = OpenOptions::new().read(true).append(true).open(&path)?;
            lock(&file)?;
            // An earlier holder of the lock may have moved the file aside after it was opened here.
            if is_at(&path, &file)? {
                break file;
            }
        };
        if file.metadata()?.len() > 0 {
            check(&file)?;
        }
        Ok(ClaimedFile { path, existing: Some(file) })
    }

    /// Returns the file, if there is a regular one.
    pub fn existing(&self) -> Option<&File> {
        self.existing.as_ref()
    }

    /// Copies the content to the first free name `NAME.1`, `NAME.2` and so on, and returns that.
    ///
    /// # Errors
    /// Content that cannot be copied.
    pub fn copy_aside(&self) -> io::Result<PathBuf> {
        let real = self.path.canonicalize()?;
        let copy = free_name(&real);
        fs::copy(&real, &copy).map_err(|error| {
            let _ = fs::remove_file(&copy);
            let reason = format!("its content cannot be copied to {}: {error}", copy.display());
            io::Error::new(error.kind(), reason)
        })?;
        Ok(copy)
    }

    /// Returns the file with its content; a new one, if there is none.
    ///
    /// # Errors
    /// A file that cannot be created, or to which another run has begun to write.
    pub fn keep(self) -> io::Result<File> {
        match self.existing {
            Some(file) => Ok(file),
            None => create(&self.path),
        }
    }

    /// Returns an empty file. Existing content is moved aside, to the returned path.
    ///
    /// # Errors
    /// As [`keep`](Self::keep), and content that cannot be moved.
    pub fn replace(self) -> io::Result<(File, Option<PathBuf>)> {
        match &self.existing {
            // Locked, until the new file is too.
            Some(file) if file.metadata()?.len() > 0 => {
                let aside = move_aside(&self.path)?;
                Ok((create(&self.path)?, aside))
            }
            _ => Ok((self.keep()?, None)),
        }
    }
}

/// Moves the file at `path` to the first free name `NAME.1`, `NAME.2` and so on, and returns that; `None` if there is
/// no regular file with content. Of a link, the file it leads to is moved.
///
/// # Errors
/// A file that cannot be moved.
pub fn move_aside(path: &Path) -> io::Result<Option<PathBuf>> {
    if !fs::metadata(path).is_ok_and(|data| data.is_file() && data.len() > 0) {
        return Ok(None);
    }
    let real = path.canonicalize()?;
    let aside = free_name(&real);
    fs::rename(&real, &aside).map_err(|error| {
        let reason = format!("its content cannot be moved to {}: {error}", aside.display());
        io::Error::new(error.kind(), reason)
    })?;
    Ok(Some(aside))
}

/// Returns the first name of `PATH.1`, `PATH.2` and so on that no file has.
pub fn free_name(path: &Path) -> PathBuf {
    let mut number = 0_u64;
    loop {
        number += 1;
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        if fs::symlink_metadata(&name).is_err() {
            return PathBuf::from(name);
        }
    }
}

/// Creates a file, and locks it; opens a pipe or a device.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = match fs::metadata(path) {
        Ok(data) if !data.is_file() => return open_output(path, options.write(true)),
        _ => options.read(true).append(true).create(true).open(path)?,
    };
    lock(&file)?;
    // Another run has begun in the meantime, and perhaps ended.
    if !is_at(path, &file)? || file.metadata()?.len() > 0 {
        return Err(in_use());
    }
    Ok(file)
}

/// Locks a file, if its file system has locks.
fn lock(file: &File) -> io::Result<()> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(in_use()),
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
    }
}

fn in_use() -> io::Error {
    let text = "another run writes to it; wait for its end, or name another file";
    io::Error::new(ErrorKind::ResourceBusy, text)
}

/// Returns true if `path` leads to `file`.
fn is_at(path: &Path, file: &File) -> io::Result<bool> {
    let own = file.metadata()?;
    let is_own = |data: fs::Metadata| (data.dev(), data.ino()) == (own.dev(), own.ino());
    Ok(fs::metadata(path).is_ok_and(is_own))
}

fn has_folder(path: &Path) -> bool {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.is_dir(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn accept(_: &File) -> io::Result<()> {
        Ok(())
    }

    #[test]
    fn a_file_has_one_writer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let mut file = ClaimedFile::claim(&path, accept).unwrap().keep().unwrap();
        file.write_all(b"first").unwrap();
        let [link, hard_link] = ["link", "hard"].map(|name| dir.path().join(name));
        std::os::unix::fs::symlink(&path, &link).unwrap();
        fs::hard_link(&path, &hard_link).unwrap();
        let spelled = dir.path().join("../").join(dir.path().file_name().unwrap()).join("./a");
        for other in [&path, &link, &hard_link, &spelled] {
            let text = ClaimedFile::claim(other, accept).unwrap_err().to_string();
            assert!(text.starts_with("another run writes to it"), "{text}");
        }
        drop(file);
        ClaimedFile::claim(&link, accept).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"first");
    }

    /// Several runs begin together, each with a claim of a file that does not exist.
    #[test]
    fn one_of_several_new_runs_writes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let [first, second] = [(); 2].map(|()| ClaimedFile::claim(&path, accept).unwrap());
        let _file = first.replace().unwrap();
        second.replace().unwrap_err();
    }

    #[test]
    fn content_is_moved_aside() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("a.txt"), dir.path().join("link"));
        std::os::unix::fs::symlink("a.txt", &link).unwrap();
        for (number, text) in ["zero", "one", "two"].into_iter().enumerate() {
            let (mut file, aside) = ClaimedFile::claim(&link, accept).unwrap().replace().unwrap();
            let expected = (number > 0).then(|| dir.path().join(format!("a.txt.{number}")));
            let expected = expected.map(|path| path.canonicalize().unwrap());
            assert_eq!(aside, expected);
            file.write_all(text.as_bytes()).unwrap();
        }
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(["a.txt.1", "a.txt.2", "a.txt"].map(read), ["zero", "one", "two"]);
        assert!(link.is_symlink() && !path.is_symlink());
    }

    #[test]
    fn a_refused_claim_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::write(&path, "mine").unwrap();
        ClaimedFile::claim(&path, |_| Err(io::Error::other("no"))).unwrap_err();
        drop(ClaimedFile::claim(&path, accept).unwrap());
        drop(ClaimedFile::claim(&dir.path().join("new"), accept).unwrap());
        ClaimedFile::claim(dir.path(), accept).unwrap_err();
        ClaimedFile::claim(&dir.path().join("none/a"), accept).unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
