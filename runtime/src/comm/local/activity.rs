//! Notices at once when no rank can go on any more.
//!
//! A *party* is a rank's own thread, or an asynchronous call that was issued and is not complete. A party runs or sleeps
//! in a [`Monitor`](super::monitor); only a running one can wake another. So when the last running one goes to sleep,
//! all wait for each other and for ever.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Counts the running parties.
pub struct Activity {
    running: AtomicUsize,
    /// Set when a thread that is no party has slept: what it will do is unknown, so nothing can be concluded.
    strangers: AtomicBool,
    on_deadlock: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

thread_local! {
    static IS_PARTY: Cell<bool> = const { Cell::new(false) };
}

impl Activity {
    pub fn new(running: usize) -> Activity {
        Activity {
            running: AtomicUsize::new(running),
            strangers: AtomicBool::new(false),
            on_deadlock: OnceLock::new(),
        }
    }

    /// What to do when no party runs any more, while some sleep.
    pub fn on_deadlock(&self, report: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_deadlock.set(Box::new(report));
    }

    /// Makes the calling thread one of those that carry parties.
    pub fn join() {
        IS_PARTY.set(true);
    }

    /// Whether the calling thread carries a party; notes it if not.
    pub fn counts_this_thread(&self) -> bool {
        let is_party = IS_PARTY.get();
        if !is_party {
            self.strangers.store(true, Ordering::Relaxed);
        }
        is_party
    }

    /// Parties have been woken, or have come to be. Called by a running party, so the count is never zero between.
    pub fn more(&self, parties: usize) {
        self.running.fetch_add(parties, Ordering::AcqRel);
    }

    /// A party goes to sleep, or has ended. Gives whether it was the last one running.
    #[must_use = "the last one reports the deadlock"]
    pub fn less(&self) -> bool {
        self.running.fetch_sub(1, Ordering::AcqRel) == 1 && !self.strangers.load(Ordering::Relaxed)
    }

    /// Reports that all wait for each other. Without locks held.
    pub fn deadlock(&self) {
        if let Some(report) = self.on_deadlock.get() {
            report();
        }
    }
}
