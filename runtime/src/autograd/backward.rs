//! Backward of losses: the tape runs in reverse, units acquire gradients, and their reductions start.

use std::rc::Rc;

use crate::context::Rank;
use crate::fsdp::{BackwardPass, StepPhase};

use super::tape::{NodeId, backpropagate};

/// Adds the gradients of the losses that `roots` have computed to those of `pass`, and starts the gradient reductions that
/// are due.
pub(crate) fn run_backward(rank: &Rank, pass: &Rc<BackwardPass>, roots: Vec<NodeId>) {
    pass.begin_micro_batch();
    let mut seed = rank.stats(1);
    seed.view_mut().write(&[1.0f32]);
    rank.set_running_backward(Some(Rc::clone(pass)));
    // Segments are recomputed as they were computed, also in the middle of an evaluation.
    rank.recorded(|| {
        let before = rank.prefetcher().enter_phase(StepPhase::Backward);
        backpropagate(rank, roots, seed);
        rank.prefetcher().enter_phase(StepPhase::Forward);
        if before == StepPhase::Evaluate {
            rank.prefetcher().enter_phase(before);
        }
    });
    rank.set_running_backward(None);
    pass.end_micro_batch(rank);
}
