//! Panics of rank threads: recorded instead of printed, so that several ranks do not write across each other.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::{Cell, RefCell};
use std::panic::PanicHookInfo;
use std::sync::Once;

thread_local! {
    static RECORDING: Cell<bool> = const { Cell::new(false) };
    static RECORD: RefCell<Option<Record>> = const { RefCell::new(None) };
}

/// What a panic said.
pub(super) struct Record {
    /// Message and place.
    pub message: String,
    pub backtrace: Option<String>,
}

/// Puts a hook before the present one, once per process. It acts only on threads inside [`recorded`].
pub(super) fn install_hook() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if RECORDING.get() { RECORD.set(Some(Record::of(info))) } else { previous(info) }
        }));
    });
}

/// Runs `body`; a panic under it prints nothing.
pub(super) fn recorded<T>(body: impl FnOnce() -> T) -> T {
    RECORDING.set(true);
    let value = body();
    RECORDING.set(false);
    value
}

/// What the last panic of this thread said; from its payload alone if the program has set a hook of its own.
pub(super) fn take_record(payload: &(dyn Any + Send)) -> Record {
    let unplaced = || Record { message: message(payload), backtrace: None };
    RECORD.take().unwrap_or_else(unplaced)
}

impl Record {
    fn of(info: &PanicHookInfo<'_>) -> Record {
        let mut message = message(info.payload());
        if let Some(location) = info.location() {
            message += &format!(", at {location}");
        }
        let trace = Backtrace::capture();
        let captured = trace.status() == BacktraceStatus::Captured;
        Record { message, backtrace: captured.then(|| own_frames(&trace.to_string())) }
    }
}

/// The frames of the rank's body, without those that report the panic and those that started the body.
fn own_frames(trace: &str) -> String {
    let is_report = |line: &&str| !line.contains("rust_begin_unwind");
    let lines = trace.lines().skip_while(is_report).skip(2);
    let lines = lines.take_while(|line| !line.contains("comm::launch::launch_with"));
    lines.collect::<Vec<_>>().join("\n")
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| text.to_string());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".into())
}
