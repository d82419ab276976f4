//! Files with tokens: those that users name, and those that rank 0 writes to the home folder for the other ranks.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use meshwright_os::effective_user;

use super::random::random_digits;
use super::rank_assignment::RankAssignment;
use super::token::Token;

/// Age of token files that are removed: no job waits so long for its ranks.
const MAX_AGE: Duration = Duration::from_secs(24 * 3600);
/// Largest token file in bytes.
const MAX_SIZE: u64 = 4096;

/// The token file of a job in the home folder of its user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HomeFile {
    home: PathBuf,
    name: String,
    /// Set if all ranks are on one host, and so have one home folder.
    one_host: bool,
}

impl HomeFile {
    /// Returns the file of a job. Its name has the address of the store too, as launchers may give several jobs of a
    /// user one name, and the host if the address is the same on every host.
    pub fn of_job(home: &Path, assignment: &RankAssignment) -> HomeFile {
        let host = || fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = if assignment.one_host { host() } else { String::new() };
        let parts = [assignment.job.as_str(), &assignment.master, host.trim()];
        let name = parts.map(safe_part).join("@");
        HomeFile { home: home.to_path_buf(), name, one_host: assignment.one_host }
    }

    /// The path of the file.
    pub fn path(&self) -> PathBuf {
        self.folder().join(&self.name)
    }

    /// Reads the token; `None` if there is no file.
    ///
    /// # Errors
    /// A file or folder that others can read or write, or that is not a file of this user.
    pub fn read(&self) -> Result<Option<Token>, String> {
        let path = self.path();
        let text = match read_secret(&path) {
            Ok(text) => text,
            // Rank 0 could not write there either, if it has the same home folder.
            Err(error) if is_unreachable(&error) => return Ok(None),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        self.check_folders().map_err(|error| error.to_string())?;
        Token::new(&text).map(Some).map_err(|problem| format!("{}: {problem}", path.display()))
    }

    /// Writes a new token, which replaces that of an earlier job.
    ///
    /// # Errors
    /// A home folder that the hosts of the job do not share, as far as is known, or that cannot be written.
    pub fn publish(&self) -> io::Result<Token> {
        if !self.one_host && !is_network_folder(&self.home) {
            return Err(io::Error::other(format!(
                "{} is on a disk of this host",
                self.home.display()
            )));
        }
        for folder in [self.parent(), self.folder()] {
            match DirBuilder::new().mode(0o700).create(&folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(named(&folder, error));
                }
                _ => {}
            }
        }
        self.check_folders()?;
        self.remove_old();
        let digits = random_digits()?;
        let (path, new) = (self.path(), self.folder().join(format!(".{}", random_digits()?)));
        let written = write_secret(&new, &digits).and_then(|()| fs::rename(&new, &path));
        if let Err(error) = written {
            // The file may not exist.
            let _ = fs::remove_file(&new);
            return Err(named(&path, error));
        }
        // A server of files may map the user to another one.
        match self.read() {
            Ok(Some(token)) if token.bytes() == digits.as_bytes() => Ok(token),
            Ok(_) => Err(io::Error::other(format!("{} was replaced", path.display()))),
            Err(problem) => Err(io::Error::other(problem)),
        }
    }

    /// Removes the file if it still contains `token`, and not that of a later job.
    pub fn remove(&self, token: &Token) {
        if self.read().is_ok_and(|found| found.as_ref() == Some(token)) {
            // It may have been removed.
            let _ = fs::remove_file(self.path());
        }
    }

    /// Removes the files of jobs that were killed while they waited for ranks.
    fn remove_old(&self) {
        let is_old = |entry: &fs::DirEntry| {
            let modified = entry.metadata().and_then(|found| found.modified()).ok();
            let age = modified.and_then(|modified| modified.elapsed().ok());
            age.is_some_and(|age| age > MAX_AGE)
        };
        for entry in fs::read_dir(self.folder()).into_iter().flatten().flatten().filter(is_old) {
            // Another job may remove it too.
            let _ = fs::remove_file(entry.path());
        }
    }

    fn parent(&self) -> PathBuf {
        self.home.join(".meshwright")
    }

    fn folder(&self) -> PathBuf {
        self.parent().join("tokens")
    }

    /// Refuses folders in which another user could replace files.
    fn check_folders(&self) -> io::Result<()> {
        for (folder, others) in [(self.parent(), 0o022), (self.folder(), 0o077)] {
            let found = fs::symlink_metadata(&folder).map_err(|error| named(&folder, error))?;
            if !found.is_dir() || found.uid() != effective_user() || found.mode() & others != 0 {
                return Err(io::Error::other(format!(
                    "{} is not a folder of this user alone; use `chmod 700 {0}`, or remove it",
                    folder.display()
                )));
            }
        }
        Ok(())
    }
}

/// Reads a file that only its owner can read: this user, or root.
pub fn read_secret(path: &Path) -> io::Result<String> {
    // A pipe without a writer is not waited for.
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = opened.map_err(|error| match error.raw_os_error() {
        // Its owner could lead it to another file.
        Some(libc::ELOOP) => {
            io::Error::other("it is a symbolic link; name the file to which it leads")
        }
        _ => error,
    })?;
    let found = file.metadata()?;
    if !found.is_file() || found.len() > MAX_SIZE {
        return Err(io::Error::other("it is not a file with a token"));
    }
    if found.uid() != effective_user() && found.uid() != 0 {
        return Err(io::Error::other("it belongs to another user; copy it to a file of your own"));
    }
    if found.mode() & 0o077 != 0 {
        return Err(io::Error::other(format!(
            "other users can read or write it; use `chmod 600 {}`",
            path.display()
        )));
    }
    let mut text = String::new();
    file.take(MAX_SIZE).read_to_string(&mut text)?;
    Ok(text)
}

/// Returns true if a file is missing, or in a folder that this process cannot enter.
fn is_unreachable(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    matches!(error.kind(), NotFound | NotADirectory | PermissionDenied)
}

fn write_secret(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file: File = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn named(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Returns a part of a file name: letters, digits and a few signs.
fn safe_part(text: &str) -> String {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    text.chars().take(80).map(|c| if is_safe(c) { c } else { '_' }).collect()
}

/// Returns true if a folder is known to be on a file system that several hosts share.
#[cfg(target_os = "linux")]
fn is_network_folder(folder: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;

    /// Magic numbers of NFS, SMB (both versions), Lustre, GPFS, BeeGFS, Ceph, AFS, OrangeFS, Panasas, and FUSE, over
    /// which others are mounted.
    const SHARED: [u32; 12] = [
        0x6969,
        0xfe53_4d42,
        0xff53_4d42,
        0x0bd0_0bd0,
        0x4750_4653,
        0x1983_0326,
        0x00c3_6400,
        0x5346_414f,
        0x2003_0528,
        0xaad7_aaea,
        0x6573_5546,
        0x0102_1997,
    ];
    let Ok(path) = std::ffi::CString::new(folder.as_os_str().as_bytes()) else { return false };
    // SAFETY: zeros are a valid value, the path ends with a zero, and `found` is writable.
    let (status, found) = unsafe {
        let mut found: libc::statfs = std::mem::zeroed();
        (libc::statfs(path.as_ptr(), &mut found), found)
    };
    status == 0 && SHARED.contains(&(found.f_type as u32))
}

#[cfg(not(target_os = "linux"))]
fn is_network_folder(_: &Path) -> bool {
    false
}
