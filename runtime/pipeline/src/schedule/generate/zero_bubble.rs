//! Zero bubble schedules: the backward pass has two parts, and the part of the weights fills the bubbles.

use super::ScheduleBuilder;
use crate::schedule::{Action, Work};

/// ZB-H1: 1F1B whose weight parts are delayed by as many micro-batches as there are earlier ranks.
pub(super) fn h1(ranks: usize, rank: usize, micro_batches: usize) -> Vec<Action> {
    let warm_up = micro_batches.min(ranks - 1 - rank);
    let mut builder = ScheduleBuilder::default();
    let mut pending = 0;
    for _ in 0..warm_up {
        builder.push_compute(Work::Forward, rank);
    }
    for _ in warm_up..micro_batches {
        builder.push_compute(Work::Forward, rank);
        builder.push_compute(Work::BackwardInput, rank);
        pending += 1;
        if pending > rank {
            builder.push_compute(Work::BackwardWeight, rank);
            pending -= 1;
        }
    }
    for _ in 0..warm_up {
        builder.push_compute(Work::BackwardInput, rank);
        builder.push_compute(Work::BackwardWeight, rank);
    }
    for _ in 0..pending {
        builder.push_compute(Work::BackwardWeight, rank);
    }
    builder.actions
}

/// ZB-V: stages `rank` and `2 * ranks - 1 - rank`. The schedule is generated for at least `2 * ranks - 1`
/// micro-batches; the ones that the step does not have are left out.
pub(super) fn zero_bubble_v(ranks: usize, rank: usize, micro_batches: usize) -> Vec<Action> {
    use Work::{BackwardInput, BackwardWeight, Forward};
    let generated = micro_batches.max(2 * ranks - 1);
    let [first, second] = [rank, 2 * ranks - 1 - rank];
    let mut builder = ScheduleBuilder::default();
    let backward = |builder: &mut ScheduleBuilder, stage| {
        builder.push_compute(BackwardInput, stage);
        builder.push_compute(BackwardWeight, stage);
    };
    let mut forwards = 2 * (ranks - rank) - 1;
    for _ in 0..forwards {
        builder.push_compute(Forward, first);
    }
    for _ in 0..rank {
        builder.push_compute(Forward, second);
        builder.push_compute(Forward, first);
    }
    forwards += rank;
    for _ in 0..ranks - rank {
        builder.push_compute(Forward, second);
        backward(&mut builder, second);
    }
    // All forward passes of the second stage so far.
    for _ in ranks..generated {
        if forwards < generated {
            builder.push_compute(Forward, first);
            forwards += 1;
        }
        backward(&mut builder, first);
        builder.push_compute(Forward, second);
        backward(&mut builder, second);
    }
    for _ in 0..rank {
        builder.push_compute(BackwardInput, first);
        builder.push_compute(BackwardInput, second);
    }
    for _ in 0..ranks - rank {
        builder.push_compute(BackwardInput, first);
        builder.push_compute(BackwardWeight, first);
    }
    for stage in [second, first] {
        for _ in 0..rank {
            builder.push_compute(BackwardWeight, stage);
        }
    }
    builder.up_to(micro_batches)
}
