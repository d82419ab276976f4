//! The order in which threads add to the same sums.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// How far the blocks of each row of blocks have added to the sums that they share: a block waits until the block before it
/// has added to the same elements.
///
/// If blocks begin in order, each on a thread of its own until it ends, then the first unfinished block never waits.
pub(super) struct Turns {
    progress: Mutex<Progress>,
    changed: Condvar,
    blocks: usize,
}

struct Progress {
    /// End of the elements that a block has added to, `[rows, blocks]`.
    ends: Vec<usize>,
    /// A thread has panicked.
    failed: bool,
}

impl Turns {
    pub fn new(rows: usize, blocks: usize) -> Turns {
        let progress = Progress { ends: vec![0; rows * blocks], failed: false };
        Turns { progress: Mutex::new(progress), changed: Condvar::new(), blocks }
    }

    /// Waits until the block before this one has added to all elements up to `end`.
    ///
    /// # Panics
    /// When the thread of another block has panicked.
    pub fn wait(&self, row: usize, block: usize, end: usize) {
        let Some(before) = block.checked_sub(1) else { return };
        let at = row * self.blocks + before;
        let mut progress = self.lock();
        while progress.ends[at] < end {
            assert!(!progress.failed, "another thread of this call panicked");
            progress = self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Notes that a block has added to all elements up to `end`.
    pub fn advance(&self, row: usize, block: usize, end: usize) {
        self.lock().ends[row * self.blocks + block] = end;
        self.changed.notify_all();
    }

    /// Returns a guard that wakes all other threads if this one panics.
    pub fn guard(&self) -> PanicGuard<'_> {
        PanicGuard(self)
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes threads that would wait forever for one that panicked.
pub(super) struct PanicGuard<'a>(&'a Turns);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lock().failed = true;
            self.0.changed.notify_all();
        }
    }
}
