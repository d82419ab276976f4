//! Files that a run writes, which are locked before it begins.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::os::ClaimedFile;
use crate::train::{Error, Result};

/// Returns the error of an output that cannot be written.
pub fn unwritable(flag: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::Output { flag, path: path.to_owned(), source }
}

/// Locks the file of a flag, whose content must be one that earlier runs have written.
pub fn claim(
    flag: &'static str,
    path: PathBuf,
    is_own: fn(&mut dyn Read) -> bool,
) -> Result<(ClaimedFile, PathBuf)> {
    let claimed = ClaimedFile::claim(&path, |mut file| {
        let problem = "it was written by another program, and would be lost; name another file, or remove this one";
        if is_own(&mut file) { Ok(()) } else { Err(std::io::Error::other(problem)) }
    });
    match claimed {
        Ok(claimed) => Ok((claimed, path)),
        Err(error) => Err(unwritable(flag, &path)(error)),
    }
}
