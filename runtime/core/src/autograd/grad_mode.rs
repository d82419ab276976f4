//! Grad mode: code that runs without being recorded for backward, and without dropout.

use crate::context::Rank;
use crate::fsdp::StepPhase;

impl Rank {
    /// Returns true if gradients will be computed of what runs now: not inside of [`evaluate`](Self::evaluate). It is
    /// the same in the forward pass of a recomputed layer and in its recomputation.
    pub fn is_recording(&self) -> bool {
        self.records_operations() || self.segments().in_forward().is_some()
    }

    /// Runs `body` without recording it for backward, and without dropout. What it computes is a constant: no gradient
    /// flows through it.
    pub fn evaluate<T>(&self, body: impl FnOnce() -> T) -> T {
        let mode = self.grad_mode();
        let restore = RestoreMode {
            rank: self,
            is_recording: mode.is_recording.replace(false),
            is_training: mode.is_training.replace(false),
            is_outside_of_segments: Some(self.segments().set_outside(true)),
            phase: self.prefetcher().enter_phase(StepPhase::Evaluate),
        };
        self.read_log().begin_scope(false);
        let result = body();
        drop(restore);
        result
    }

    /// Runs `body` without recording it for backward; dropout stays as it is.
    pub(crate) fn unrecorded<T>(&self, body: impl FnOnce() -> T) -> T {
        let mode = self.grad_mode();
        let restore = RestoreMode {
            rank: self,
            is_recording: mode.is_recording.replace(false),
            is_training: mode.is_training.get(),
            is_outside_of_segments: None,
            phase: self.prefetcher().phase(),
        };
        let result = body();
        drop(restore);
        result
    }

    /// Runs `body` with everything recorded for backward, with dropout, and inside of the segments that it recomputes.
    pub(super) fn recorded<T>(&self, body: impl FnOnce() -> T) -> T {
        let mode = self.grad_mode();
        let is_recording = mode.is_recording.replace(true);
        let is_training = mode.is_training.replace(true);
        let is_outside = self.segments().set_outside(false);
        let result = body();
        mode.is_recording.set(is_recording);
        mode.is_training.set(is_training);
        self.segments().set_outside(is_outside);
        result
    }
}

/// Restores the modes when dropped, also when `body` unwinds.
struct RestoreMode<'a> {
    rank: &'a Rank,
    is_recording: bool,
    is_training: bool,
    /// The state before an evaluation; `None` for other code.
    is_outside_of_segments: Option<bool>,
    phase: StepPhase,
}

impl Drop for RestoreMode<'_> {
    fn drop(&mut self) {
        let mode = self.rank.grad_mode();
        mode.is_recording.set(self.is_recording);
        mode.is_training.set(self.is_training);
        if let Some(is_outside) = self.is_outside_of_segments {
            self.rank.segments().set_outside(is_outside);
            self.rank.read_log().end_scope();
        }
        self.rank.prefetcher().enter_phase(self.phase);
    }
}
