//! Panics of rank threads: captured instead of printed, so that the output of several ranks does not interleave.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::{Cell, RefCell};
use std::panic::PanicHookInfo;
use std::sync::Once;

thread_local! {
    static CAPTURING: Cell<bool> = const { Cell::new(false) };
    static LAST_PANIC: RefCell<Option<PanicReport>> = const { RefCell::new(None) };
}

/// A captured panic.
pub(super) struct PanicReport {
    /// Message and source location.
    pub message: String,
    pub backtrace: Option<String>,
}

/// Installs a panic hook around the present one, once per process. It acts only on threads inside [`capture_panics`].
pub(super) fn install_hook() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if CAPTURING.get() {
                LAST_PANIC.set(Some(PanicReport::from_hook(info)))
            } else {
                previous(info)
            }
        }));
    });
}

/// Runs `body` with its panics captured instead of printed.
pub(super) fn capture_panics<T>(body: impl FnOnce() -> T) -> T {
    CAPTURING.set(true);
    let value = body();
    CAPTURING.set(false);
    value
}

/// Returns the last panic of this thread, made from its payload alone if the program has replaced the panic hook.
pub(super) fn take_panic_report(payload: &(dyn Any + Send)) -> PanicReport {
    let without_location = || PanicReport { message: message(payload), backtrace: None };
    LAST_PANIC.take().unwrap_or_else(without_location)
}

impl PanicReport {
    fn from_hook(info: &PanicHookInfo<'_>) -> PanicReport {
        let mut message = message(info.payload());
        if let Some(location) = info.location() {
            message += &format!(", at {location}");
        }
        let trace = Backtrace::capture();
        let captured = trace.status() == BacktraceStatus::Captured;
        PanicReport { message, backtrace: captured.then(|| own_frames(&trace.to_string())) }
    }
}

/// Returns the backtrace frames of the rank's body, without the frames of the panic machinery and the launcher.
fn own_frames(trace: &str) -> String {
    let is_report = |line: &&str| !line.contains("rust_begin_unwind");
    let lines = trace.lines().skip_while(is_report).skip(2);
    let lines = lines.take_while(|line| !line.contains("comm::launch::"));
    lines.collect::<Vec<_>>().join("\n")
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| text.to_string());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".into())
}
