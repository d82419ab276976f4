//! The number of saves that have failed.

/// The saves that have failed since the last complete checkpoint, the same on all ranks.
#[derive(Default)]
pub struct FailedSaves {
    in_a_row: usize,
    /// The step of the last one, until the metrics have it.
    unreported: Option<u64>,
}

impl FailedSaves {
    /// Returns the step of a save that has failed since the last call.
    pub fn take_unreported(&mut self) -> Option<u64> {
        self.unreported.take()
    }

    /// Counts a save after `step` steps that has failed, and returns how many have in a row.
    pub(super) fn count(&mut self, step: u64) -> usize {
        self.in_a_row += 1;
        self.unreported = Some(step);
        self.in_a_row
    }

    /// Begins a new count, after a complete checkpoint.
    pub(super) fn reset(&mut self) {
        self.in_a_row = 0;
    }
}
