//! Memory requirements of a schedule, in chunks.

use super::{Schedule, Work};

/// The largest number of chunks that a rank keeps memory for at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Peak {
    /// Forward passes whose backward pass has not begun: each keeps its activations.
    pub live: usize,
    /// Peak of `live` with the backward passes whose weight part is still to come: each keeps the operands of that
    /// part.
    pub with_pending_weights: usize,
}

/// The peak of each rank, which follows from the order of its actions alone.
pub fn peaks(schedule: &Schedule) -> Vec<Peak> {
    let of_rank = |actions: &Vec<super::Action>| {
        let (mut live, mut pending) = (0usize, 0usize);
        let mut peak = Peak::default();
        for compute in actions.iter().flat_map(|action| action.computes()) {
            match compute.work {
                Work::Forward => live += 1,
                Work::Backward => live = live.saturating_sub(1),
                Work::BackwardInput => {
                    live = live.saturating_sub(1);
                    pending += 1;
                }
                Work::BackwardWeight => pending = pending.saturating_sub(1),
            }
            peak.live = peak.live.max(live);
            peak.with_pending_weights = peak.with_pending_weights.max(live + pending);
        }
        peak
    };
    schedule.ranks.iter().map(of_rank).collect()
}
