//! What the programs of this crate share.

#[cfg(feature = "cuda")]
#[path = "src/null.rs"]
pub mod null;

/// Processor time of this thread, in seconds: what other work on the machine does not change.
pub fn thread_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(status, 0, "the clock exists");
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
