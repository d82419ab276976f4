//! The training step of a rank, which keys dropout.

use std::cell::Cell;

/// Current training step, and how often operations have read it.
#[derive(Default)]
pub(super) struct StepCounter {
    current: Cell<u64>,
    reads: Cell<u64>,
}

impl StepCounter {
    /// Returns the step, and counts the read.
    pub(super) fn read(&self) -> u64 {
        self.reads.set(self.reads.get() + 1);
        self.current.get()
    }

    /// Returns the step without counting a read.
    pub(super) fn peek_step(&self) -> u64 {
        self.current.get()
    }

    /// Sets the step, and returns the previous one.
    pub(super) fn replace_step(&self, step: u64) -> u64 {
        self.current.replace(step)
    }

    /// Returns how often the step was read.
    pub(super) fn read_count(&self) -> u64 {
        self.reads.get()
    }
}
