//! Shared code of the benchmark programs.

#[cfg(feature = "cuda")]
#[path = "src/call_counter.rs"]
pub mod call_counter;

/// Returns the CPU time of this thread, in seconds, which does not depend on the machine's load.
pub fn thread_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(status, 0, "the clock exists");
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
