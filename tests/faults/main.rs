//! Faults: every rank stops with an error, and none waits forever.

mod calls;
mod memory;
mod sharded;

use std::sync::mpsc;
use std::time::Duration;

/// Far more than a test needs, far less than a person waits.
const PATIENCE: Duration = Duration::from_secs(60);

/// What `body` gives, for which nobody waits longer than [`PATIENCE`].
#[track_caller]
fn in_time<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, result) = mpsc::channel();
    std::thread::spawn(move || {
        // Nobody listens where patience has ended.
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
