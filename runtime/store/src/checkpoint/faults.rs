//! Faults of the file system, for tests: one operation fails, or it and all later ones do, or all are slow.

use std::cell::Cell;
use std::io;
use std::time::Duration;

/// A planned fault.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// The operation with this index fails.
    Error(usize),
    /// The operation with this index and all later ones fail, as if the process had been killed before.
    Crash(usize),
}

thread_local! {
    static PLANNED: Cell<Option<Fault>> = const { Cell::new(None) };
    static COUNT: Cell<usize> = const { Cell::new(0) };
    static DELAY: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Delays every later operation of this thread.
pub fn delay_operations(delay: Duration) {
    DELAY.set(delay);
}

/// Returns the delay of operations of this thread.
pub fn delay() -> Duration {
    DELAY.get()
}

/// Runs `body` with a fault in the operations of this thread, and returns its result and true if the fault occurred.
pub fn with_fault<T>(fault: Fault, body: impl FnOnce() -> T) -> (T, bool) {
    COUNT.set(0);
    PLANNED.set(Some(fault));
    let result = body();
    PLANNED.set(None);
    let (Fault::Error(index) | Fault::Crash(index)) = fault;
    (result, COUNT.get() > index)
}

/// Counts an operation, and fails if a fault is planned for it. The error names the index of the operation.
pub fn count_operation() -> io::Result<()> {
    std::thread::sleep(DELAY.get());
    let index = COUNT.replace(COUNT.get() + 1);
    let fails = match PLANNED.get() {
        Some(Fault::Error(planned)) => index == planned,
        Some(Fault::Crash(planned)) => index >= planned,
        None => false,
    };
    if fails {
        let kind = io::ErrorKind::Unsupported;
        Err(io::Error::new(kind, format!("fault in operation {index}")))
    } else {
        Ok(())
    }
}
