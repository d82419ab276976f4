//! The number of steps whose updates are left out.

/// The steps whose updates were left out, the same on all ranks.
#[derive(Default)]
pub struct SkippedSteps {
    /// Skipped steps of the whole run, also before it was resumed.
    pub total: u64,
    pub(super) in_a_row: u64,
}

impl SkippedSteps {
    /// Goes on counting from the number in a checkpoint.
    pub(super) fn resumed(total: u64) -> SkippedSteps {
        SkippedSteps { total, in_a_row: 0 }
    }
}
