//! The end of threads that read ahead: what they wait for ends, too.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    static FLAG: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// Ends reads of this thread early once `flag` is set.
pub fn interrupt_by(flag: Arc<AtomicBool>) {
    FLAG.set(Some(flag));
}

/// Returns true if reads of this thread are not needed any more.
pub fn is_interrupted() -> bool {
    FLAG.with_borrow(|flag| flag.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)))
}
