//! The limit of open files.

/// Files that a process needs besides its data.
const OTHER_FILES: u64 = 1024;

/// Raises the limit of open files of this process to that of `files` and a thousand others, as far as the system allows
/// it. A file beyond the limit is an error when it is opened.
pub fn allow_open_files(files: usize) {
    let needed = OTHER_FILES.saturating_add(files as u64);
    if rlimit::getrlimit(rlimit::Resource::NOFILE).is_ok_and(|(soft, _)| soft < needed) {
        let _ = rlimit::increase_nofile_limit(needed);
    }
}

/// Returns true if the process, or the system, has no further open files.
pub fn is_limit_of_open_files(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised() {
        let (soft, hard) = rlimit::getrlimit(rlimit::Resource::NOFILE).unwrap();
        rlimit::setrlimit(rlimit::Resource::NOFILE, soft.min(1024), hard).unwrap();
        allow_open_files(100);
        let (now, _) = rlimit::getrlimit(rlimit::Resource::NOFILE).unwrap();
        assert_eq!(now, hard.min(1124));
        // A limit that suffices stays.
        allow_open_files(3);
        assert_eq!(rlimit::getrlimit(rlimit::Resource::NOFILE).unwrap().0, now);
        assert!(is_limit_of_open_files(&std::io::Error::from_raw_os_error(libc::EMFILE)));
    }
}
