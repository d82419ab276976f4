//! Backward of losses: the tape runs in reverse, units acquire gradients, and their reductions start.

use std::rc::Rc;
use std::sync::Arc;

use super::tape::{LossFactor, LossSeed, NodeId, backpropagate};
use crate::context::Rank;
use crate::fsdp::{BackwardPass, CompletedUnits, StepPhase};

/// Adds the gradients of the losses that `roots` have computed, and whose sums have the factor `factor`, to the
/// gradients of `pass`, and starts the gradient reductions that are due. All gradients are complete after the last
/// micro-batch.
pub(crate) fn run_backward(
    rank: &Rank,
    pass: &Rc<BackwardPass>,
    roots: Vec<NodeId>,
    factor: LossFactor,
    is_last: bool,
) {
    let completed = if is_last { CompletedUnits::All } else { CompletedUnits::None };
    run_micro_batch(rank, pass, completed, || {
        in_backward_phase(rank, || backpropagate(rank, roots, LossSeed::new(rank, factor)));
    });
}

/// Runs `body`, which adds the gradients of one micro-batch to the gradients of `pass`, and starts the gradient
/// reductions that are due. The gradients of `completed` are complete after it.
pub(super) fn run_micro_batch<T>(
    rank: &Rank,
    pass: &Rc<BackwardPass>,
    completed: CompletedUnits,
    body: impl FnOnce() -> T,
) -> T {
    pass.begin_micro_batch(completed);
    rank.set_running_backward(Some(Rc::clone(pass)));
    let result = body();
    rank.set_running_backward(None);
    pass.end_micro_batch(rank);
    result
}

/// Runs `body`, which runs the current tape backward.
pub(super) fn in_backward_phase<T>(rank: &Rank, body: impl FnOnce() -> T) -> T {
    // Segments are recomputed as they were computed, also in the middle of an evaluation.
    rank.recorded(|| {
        let before = rank.prefetcher().enter_phase(StepPhase::Backward);
        let result = body();
        rank.prefetcher().enter_phase(StepPhase::Forward);
        if before == StepPhase::Evaluate {
            rank.prefetcher().enter_phase(before);
        }
        result
    })
}

impl LossSeed {
    /// Creates the initial gradient of losses whose sums have the factor `factor`.
    pub(super) fn new(rank: &Rank, factor: LossFactor) -> LossSeed {
        let mut gradient = rank.alloc_statistics(1);
        gradient.view_mut().write(&[1.0f32]);
        LossSeed { gradient: Arc::new(gradient), factor }
    }
}
