//! Failures: every rank stops with an error, and no rank hangs.

mod calls;
mod memory;
mod pipeline;
mod sampling;
mod sharded;
mod stopped;

use std::sync::mpsc;
use std::time::Duration;

/// Timeout of a test.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the result of `body`, or panics after [`PATIENCE`].
#[track_caller]
fn in_time<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, result) = mpsc::channel();
    std::thread::spawn(move || {
        // The receiver is gone after the timeout.
        let _ = sender.send(body());
    });
    result.recv_timeout(PATIENCE).expect("a rank still waits, or the body has panicked")
}

#[track_caller]
fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
}
