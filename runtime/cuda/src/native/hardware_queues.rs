//! Hardware queues of a process.
//!
//! The driver distributes the streams of a process over hardware queues, 8 by default. A rank has one stream for each
//! process group, and with `pp` for each neighbor: more than that. Streams of one queue wait for each other although no
//! event says so.

use std::env;
use std::fs;

/// The environment variable with the number of hardware queues, which the driver reads when it is initialized.
pub const HARDWARE_QUEUES: &str = "CUDA_DEVICE_MAX_CONNECTIONS";

/// The most hardware queues that the driver creates.
const MOST: &str = "32";

/// Requests as many hardware queues as there can be, unless the environment sets a number.
///
/// A program calls it first. It has no effect if other threads are running, because they may read the environment, nor
/// after the driver has been initialized.
pub fn request_hardware_queues() {
    if needs_request(env::var_os(HARDWARE_QUEUES).is_some(), thread_count()) {
        // SAFETY: no other thread is running, so none reads the environment.
        unsafe { env::set_var(HARDWARE_QUEUES, MOST) };
    }
}

/// Returns true if the variable has to be set, and a process with this many threads can do so.
fn needs_request(is_set: bool, threads: Option<usize>) -> bool {
    !is_set && threads == Some(1)
}

/// Returns the number of threads of this process, if known.
fn thread_count() -> Option<usize> {
    Some(fs::read_dir("/proc/self/task").ok()?.count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_settings_and_other_threads_are_respected() {
        assert!(needs_request(false, Some(1)));
        assert!(!needs_request(true, Some(1)));
        assert!(!needs_request(false, Some(2)));
        assert!(!needs_request(false, None));
    }

    /// A test runs on a thread of its own.
    #[test]
    fn threads_are_counted() {
        assert!(thread_count().is_none_or(|threads| threads > 1));
        let before = env::var_os(HARDWARE_QUEUES);
        request_hardware_queues();
        assert_eq!(env::var_os(HARDWARE_QUEUES), before);
    }
}
