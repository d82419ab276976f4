//! Grad mode flags of a rank.

use std::cell::Cell;

/// Flags that operations read: on by default, changed by [`Rank::evaluate`](super::Rank::evaluate) and by activation
/// checkpointing.
pub(crate) struct GradMode {
    /// True if operations are recorded for backward.
    pub is_recording: Cell<bool>,
    /// True if dropout is on.
    pub is_training: Cell<bool>,
    /// Key of rounding noise, if results have some.
    pub noise_key: Cell<Option<u32>>,
}

impl Default for GradMode {
    fn default() -> Self {
        GradMode {
            is_recording: Cell::new(true),
            is_training: Cell::new(true),
            noise_key: Cell::new(None),
        }
    }
}
