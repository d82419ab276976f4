//! The schedules GPipe and 1F1B.

use super::ScheduleBuilder;
use crate::schedule::{Action, Work};

/// All forward passes, then all backward passes.
pub(super) fn gpipe(rank: usize, micro_batches: usize) -> Vec<Action> {
    let mut builder = ScheduleBuilder::default();
    for work in [Work::Forward, Work::Backward] {
        (0..micro_batches).for_each(|_| {
            builder.push_compute(work, rank);
        });
    }
    builder.actions
}

/// 1F1B: as many forward passes as there are later ranks, then a forward and a backward pass in turn.
pub(super) fn one_f_one_b(ranks: usize, rank: usize, micro_batches: usize) -> Vec<Action> {
    let warm_up = micro_batches.min(ranks - 1 - rank);
    let mut builder = ScheduleBuilder::default();
    for _ in 0..warm_up {
        builder.push_compute(Work::Forward, rank);
    }
    for _ in warm_up..micro_batches {
        builder.push_compute(Work::Forward, rank);
        builder.push_compute(Work::Backward, rank);
    }
    for _ in 0..warm_up {
        builder.push_compute(Work::Backward, rank);
    }
    builder.actions
}
