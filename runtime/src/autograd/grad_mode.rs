//! Grad mode: whether operations are recorded for backward, and whether dropout is on.

use std::cell::Cell;

use crate::context::Rank;
use crate::fsdp::Phase;

/// Modes of a rank.
struct GradMode {
    is_recording: Cell<bool>,
    is_training: Cell<bool>,
}

impl Default for GradMode {
    fn default() -> Self {
        GradMode { is_recording: Cell::new(true), is_training: Cell::new(true) }
    }
}

impl Rank {
    /// Returns true if operations are recorded for backward.
    pub fn is_recording(&self) -> bool {
        self.session_state::<GradMode>().is_recording.get()
    }

    /// Returns true if dropout is on.
    pub fn is_training(&self) -> bool {
        self.session_state::<GradMode>().is_training.get()
    }

    /// Runs `body` without recording it for backward, and without dropout.
    pub fn evaluate<T>(&self, body: impl FnOnce() -> T) -> T {
        let mode = self.session_state::<GradMode>();
        let restore = RestoreMode {
            rank: self,
            is_recording: mode.is_recording.replace(false),
            is_training: mode.is_training.replace(false),
            phase: self.prefetcher().enter_phase(Phase::Evaluate),
        };
        let result = body();
        drop(restore);
        result
    }

    /// Runs `body` without recording it for backward; dropout stays as it is.
    pub(crate) fn unrecorded<T>(&self, body: impl FnOnce() -> T) -> T {
        let mode = self.session_state::<GradMode>();
        let restore = RestoreMode {
            rank: self,
            is_recording: mode.is_recording.replace(false),
            is_training: mode.is_training.get(),
            phase: self.prefetcher().phase(),
        };
        let result = body();
        drop(restore);
        result
    }

    /// Runs `body` with everything recorded for backward, and with dropout.
    pub(super) fn recorded<T>(&self, body: impl FnOnce() -> T) -> T {
        let mode = self.session_state::<GradMode>();
        let is_recording = mode.is_recording.replace(true);
        let is_training = mode.is_training.replace(true);
        let result = body();
        mode.is_recording.set(is_recording);
        mode.is_training.set(is_training);
        result
    }
}

/// Restores the modes when dropped, also when `body` unwinds.
struct RestoreMode<'a> {
    rank: &'a Rank,
    is_recording: bool,
    is_training: bool,
    phase: Phase,
}

impl Drop for RestoreMode<'_> {
    fn drop(&mut self) {
        let mode = self.rank.session_state::<GradMode>();
        mode.is_recording.set(self.is_recording);
        mode.is_training.set(self.is_training);
        self.rank.prefetcher().enter_phase(self.phase);
    }
}
