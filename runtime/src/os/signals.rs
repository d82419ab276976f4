//! Signals of the process.

/// Makes a write beyond the file size limit of the process (`ulimit -f`) fail with an error that names the file, instead
/// of ending the process without a message. Programs call it when they start.
pub fn ignore_file_size_signal() {
    // SAFETY: no handler is installed. The call fails for signals that do not exist or cannot be ignored only.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}
