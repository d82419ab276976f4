//! Exit codes of programs: a contract with schedulers, which start a program again after some of them.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Settings, input or environment are to be changed.
pub const REFUSED: u8 = 2;

/// A rank, process, device, connection or file was lost, or memory ran out: the same command may succeed.
pub const LOST: u8 = 3;

/// The same command would fail again: training diverged, the data ended, or ranks differ.
pub const FAILS_AGAIN: u8 = 4;

/// A signal or a time limit has stopped the run, and its state is saved.
pub const STOPPED: u8 = 75;

/// Returns the exit code after an error of the system: [`REFUSED`] if a path or its permissions are to be changed, else
/// [`LOST`].
pub fn code_of_io(error: &io::Error) -> u8 {
    // A loop of links, a socket or a missing device, and a program that runs.
    if let Some(libc::ELOOP | libc::ENXIO | libc::ETXTBSY) = error.raw_os_error() {
        return REFUSED;
    }
    match error.kind() {
        ErrorKind::NotFound
        | ErrorKind::PermissionDenied
        | ErrorKind::AlreadyExists
        | ErrorKind::NotADirectory
        | ErrorKind::IsADirectory
        | ErrorKind::ReadOnlyFilesystem
        | ErrorKind::InvalidFilename
        | ErrorKind::InvalidInput
        | ErrorKind::Unsupported => REFUSED,
        // The content of a file, and reasons that name a fix.
        ErrorKind::InvalidData
        | ErrorKind::UnexpectedEof
        | ErrorKind::ResourceBusy
        | ErrorKind::Other
            if error.raw_os_error().is_none() =>
        {
            REFUSED
        }
        _ => LOST,
    }
}

/// Returns the exit code after an error: that of the system's error in its chain of sources, else [`REFUSED`].
pub fn code_of_error(error: &(dyn Error + 'static)) -> u8 {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref() {
            return code_of_io(error);
        }
        next = error.source();
    }
    REFUSED
}

/// Runs the main part of a program. A panic, whose message is printed already, ends the process with [`LOST`].
pub fn exit_on_panic<T>(body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| std::process::exit(i32::from(LOST)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{source}")]
    struct Outer {
        source: io::Error,
    }

    #[test]
    fn errors_of_the_system_have_codes() {
        for (number, code) in [
            (libc::ENOENT, REFUSED),
            (libc::EACCES, REFUSED),
            (libc::EISDIR, REFUSED),
            (libc::EROFS, REFUSED),
            (libc::ELOOP, REFUSED),
            (libc::ENXIO, REFUSED),
            (libc::ETXTBSY, REFUSED),
            (libc::ENOSPC, LOST),
            (libc::EDQUOT, LOST),
            (libc::EFBIG, LOST),
            (libc::EIO, LOST),
            (libc::ESTALE, LOST),
            (libc::ETIMEDOUT, LOST),
            (libc::ENOMEM, LOST),
        ] {
            let error = Outer { source: io::Error::from_raw_os_error(number) };
            assert_eq!(code_of_error(&error), code, "{error}");
        }
        let renamed = io::Error::new(ErrorKind::StorageFull, "cannot write to standard output");
        assert_eq!(code_of_error(&renamed), LOST);
        assert_eq!(code_of_error(&io::Error::other("it is a folder; remove it")), REFUSED);
        assert_eq!(code_of_error(&std::fmt::Error), REFUSED);
    }
}
