//! The order of additions by several threads to the same sums.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Progress of the blocks of each row of blocks in adding to the sums that they share: a block waits until the block
/// before it has added to the same elements.
///
/// If blocks begin in order, each on a thread of its own until it ends, then the first unfinished block never waits.
pub(super) struct Turns {
    progress: Mutex<TurnProgress>,
    changed: Condvar,
    blocks: usize,
}

struct TurnProgress {
    /// End of the elements that a block has added to, `[rows, blocks]`.
    ends: Vec<usize>,
    /// A thread has panicked.
    failed: bool,
}

impl Turns {
    pub fn new(rows: usize, blocks: usize) -> Turns {
        let progress = TurnProgress { ends: vec![0; rows * blocks], failed: false };
        Turns { progress: Mutex::new(progress), changed: Condvar::new(), blocks }
    }

    /// Waits until the block before this one has added to all elements up to `end`.
    ///
    /// # Panics
    /// When the thread of another block has panicked.
    pub fn wait_for_turn(&self, row: usize, block: usize, end: usize) {
        let Some(before) = block.checked_sub(1) else { return };
        let at = row * self.blocks + before;
        let mut progress = self.lock_progress();
        while progress.ends[at] < end {
            assert!(!progress.failed, "another thread of this call panicked");
            progress = self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Notes that a block has added to all elements up to `end`.
    pub fn advance_row(&self, row: usize, block: usize, end: usize) {
        self.lock_progress().ends[row * self.blocks + block] = end;
        self.changed.notify_all();
    }

    /// Returns a guard that wakes all other threads if this one panics.
    pub fn guard(&self) -> PanicGuard<'_> {
        PanicGuard(self)
    }

    fn lock_progress(&self) -> MutexGuard<'_, TurnProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes threads that would wait forever for one that panicked.
pub(super) struct PanicGuard<'a>(&'a Turns);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lock_progress().failed = true;
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_follow_each_other() {
        let turns = Turns::new(2, 3);
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for block in (0..3).rev() {
                let (turns, order) = (&turns, &order);
                scope.spawn(move || {
                    for end in [10, 20, 30] {
                        turns.wait_for_turn(1, block, end);
                        order.lock().expect("nothing panics").push((block, end));
                        turns.advance_row(1, block, end);
                    }
                });
            }
        });
        let order = order.into_inner().expect("nothing panics");
        let turn = |of| order.iter().position(|at| *at == of).expect("every block has a turn");
        for (block, end) in
            [0, 1].into_iter().flat_map(|block| [10, 20, 30].map(|end| (block, end)))
        {
            assert!(turn((block, end)) < turn((block + 1, end)), "{order:?}");
        }
    }

    #[test]
    fn a_panic_wakes_those_that_wait() {
        let turns = Turns::new(1, 2);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| turns.wait_for_turn(0, 1, 10));
            let failing = scope.spawn(|| {
                let _guard = turns.guard();
                panic!("a kernel fails");
            });
            assert!(failing.join().is_err());
            let error = waiting.join().expect_err("it does not wait forever");
            let message = error.downcast_ref::<&str>().expect("a message");
            assert!(message.contains("another thread of this call panicked"), "{message}");
        });
    }
}
