//! DualPipeV: a V of two chunks per rank, with forward and backward passes in pairs.

use std::collections::VecDeque;

use super::ScheduleBuilder;
use crate::schedule::{Action, Compute, Work};

/// Stages `rank` and `2 * ranks - 1 - rank`. Generated for at least `2 * ranks` micro-batches, of which those that the
/// step does not have are left out.
pub(super) fn dualpipev(ranks: usize, rank: usize, micro_batches: usize) -> Vec<Action> {
    use Work::{Backward, BackwardInput, Forward};
    let generated = micro_batches.max(2 * ranks);
    let [first, second] = [rank, 2 * ranks - 1 - rank];
    let later = ranks - 1 - rank;
    let mut builder = ScheduleBuilder::default();
    // Weight parts that are to be computed, oldest first.
    let mut pending: VecDeque<(usize, usize)> = VecDeque::new();
    let compute_pending = |builder: &mut ScheduleBuilder,
                           pending: &mut VecDeque<(usize, usize)>| {
        if let Some((stage, micro_batch)) = pending.pop_front() {
            let compute = Compute::new(Work::BackwardWeight, stage, micro_batch);
            builder.actions.push(compute.into());
        }
    };
    for _ in 0..2 * later {
        builder.push_compute(Forward, first);
    }
    for _ in 0..=rank {
        builder.push_compute(Forward, first);
        builder.push_compute(Forward, second);
    }
    for _ in 0..later {
        let micro_batch = builder.push_compute(BackwardInput, second);
        pending.push_back((second, micro_batch));
        compute_pending(&mut builder, &mut pending);
        builder.push_compute(Forward, second);
    }
    for time in 0..generated - 2 * ranks + rank + 1 {
        if time == 0 && later == 0 {
            // The last rank has just computed the forward pass whose backward pass this is.
            builder.push_compute(Forward, first);
            builder.push_compute(Backward, second);
        } else {
            builder.overlap((Forward, first), (Backward, second));
        }
        builder.overlap((Forward, second), (Backward, first));
    }
    for _ in 0..later {
        builder.push_compute(Backward, second);
        builder.overlap((Forward, second), (Backward, first));
    }
    // From this half on the weight parts wait, to fill the cool-down.
    let half = rank.div_ceil(2);
    for time in 0..=rank {
        for stage in [second, first] {
            let splits = time > half || time == half && (rank % 2 == 1 || stage == first);
            if splits {
                let micro_batch = builder.push_compute(BackwardInput, stage);
                pending.push_back((stage, micro_batch));
            } else {
                builder.push_compute(Backward, stage);
            }
        }
    }
    for _ in 0..later {
        compute_pending(&mut builder, &mut pending);
        let micro_batch = builder.push_compute(BackwardInput, first);
        pending.push_back((first, micro_batch));
    }
    while !pending.is_empty() {
        compute_pending(&mut builder, &mut pending);
    }
    builder.up_to(micro_batches)
}
