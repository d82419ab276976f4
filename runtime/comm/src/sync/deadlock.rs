//! Deadlock detection among the ranks of a process.
//!
//! A *task* is a rank's main thread, or an asynchronous call that was issued and is not complete. A task runs or sleeps
//! in a [`Monitor`](super::Monitor), and only a running task can wake another. So when the last running task goes to
//! sleep, all tasks wait for each other forever.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Counter of running tasks.
pub struct DeadlockDetector {
    running: AtomicUsize,
    /// Set when a thread that carries no task has slept: it may wake others later, so no deadlock can be concluded.
    has_foreign_threads: AtomicBool,
    on_deadlock: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

thread_local! {
    static CARRIES_TASKS: Cell<bool> = const { Cell::new(false) };
}

impl DeadlockDetector {
    /// Creates a detector with `running` tasks.
    pub fn new(running: usize) -> DeadlockDetector {
        DeadlockDetector {
            running: AtomicUsize::new(running),
            has_foreign_threads: AtomicBool::new(false),
            on_deadlock: OnceLock::new(),
        }
    }

    /// Sets the function that runs when every task sleeps.
    pub fn on_deadlock(&self, report: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_deadlock.set(Box::new(report));
    }

    /// Marks the calling thread as one that carries tasks.
    pub fn register_thread() {
        CARRIES_TASKS.set(true);
    }

    /// Returns `true` if the calling thread carries a task, and notes a foreign thread otherwise.
    pub fn tracks_this_thread(&self) -> bool {
        let carries_task = CARRIES_TASKS.get();
        if !carries_task {
            self.has_foreign_threads.store(true, Ordering::Relaxed);
        }
        carries_task
    }

    /// Counts tasks that were woken or created. The caller is a running task, so the count never drops to zero between.
    pub fn add_running(&self, tasks: usize) {
        self.running.fetch_add(tasks, Ordering::AcqRel);
    }

    /// Counts a task that goes to sleep or has ended. Returns `true` if it was the last one running.
    #[must_use = "the last running task reports the deadlock"]
    pub fn remove_running(&self) -> bool {
        self.running.fetch_sub(1, Ordering::AcqRel) == 1
            && !self.has_foreign_threads.load(Ordering::Relaxed)
    }

    /// Reports a deadlock. The caller must hold no lock.
    pub fn report_deadlock(&self) {
        if let Some(report) = self.on_deadlock.get() {
            report();
        }
    }
}
