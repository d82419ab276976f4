//! The user of this process.

/// Returns the number of the user whose rights this process has, the owner of the files that it creates.
pub fn effective_user() -> u32 {
    // SAFETY: the call has no preconditions, and does not fail.
    unsafe { libc::geteuid() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn new_files_belong_to_the_user() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(file.as_file().metadata().unwrap().uid(), effective_user());
    }
}
