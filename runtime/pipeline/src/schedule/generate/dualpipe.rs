//! DualPipeV: a V of two chunks per rank, with forward and backward passes in pairs.
//!
//! It is one half of DeepSeek's DualPipe ("DeepSeek-V3 Technical Report", 2024; Qi et al., "DualPipe Could Be Better
//! Without the Dual", 2025), in the order of its program `dualpipev.py`, which PyTorch's `ScheduleDualPipeV` has too.

use std::collections::VecDeque;

use super::ScheduleBuilder;
use crate::schedule::Work::{Backward, BackwardInput, BackwardWeight, Forward};
use crate::schedule::{Action, Compute};

/// Stages `rank` and `2 * ranks - 1 - rank`. The schedule is generated for at least `2 * ranks` micro-batches; the ones
/// that the step does not have are left out.
pub(super) fn dualpipev(ranks: usize, rank: usize, micro_batches: usize) -> Vec<Action> {
    let generated = micro_batches.max(2 * ranks);
    let mut schedule = DualPipeV {
        rank,
        later_ranks: ranks - 1 - rank,
        stages: [rank, 2 * ranks - 1 - rank],
        builder: ScheduleBuilder::default(),
        pending: VecDeque::new(),
    };
    schedule.add_warm_up();
    schedule.add_steady_state(generated - 2 * ranks + rank + 1);
    schedule.add_cool_down();
    schedule.builder.up_to(micro_batches)
}

/// The schedule of a rank under construction.
struct DualPipeV {
    rank: usize,
    later_ranks: usize,
    /// The rank's stages on the way to the last rank, and on the way back.
    stages: [usize; 2],
    builder: ScheduleBuilder,
    /// Stages and micro-batches of the weight parts that are to be computed, oldest first.
    pending: VecDeque<(usize, usize)>,
}

impl DualPipeV {
    /// Adds forward passes, and the first backward passes of the second stage, in two parts.
    fn add_warm_up(&mut self) {
        let [first, second] = self.stages;
        for _ in 0..2 * self.later_ranks {
            self.builder.push_compute(Forward, first);
        }
        for _ in 0..=self.rank {
            self.builder.push_compute(Forward, first);
            self.builder.push_compute(Forward, second);
        }
        for _ in 0..self.later_ranks {
            self.push_input_part(second);
            self.push_weight_part();
            self.builder.push_compute(Forward, second);
        }
    }

    /// Adds `pairs` of overlapped passes on both stages, and the last pairs with a forward pass.
    fn add_steady_state(&mut self, pairs: usize) {
        let [first, second] = self.stages;
        for pair in 0..pairs {
            if pair == 0 && self.later_ranks == 0 {
                // The last rank has just computed the forward pass whose backward pass this is.
                self.builder.push_compute(Forward, first);
                self.builder.push_compute(Backward, second);
            } else {
                self.builder.overlap((Forward, first), (Backward, second));
            }
            self.builder.overlap((Forward, second), (Backward, first));
        }
        for _ in 0..self.later_ranks {
            self.builder.push_compute(Backward, second);
            self.builder.overlap((Forward, second), (Backward, first));
        }
    }

    /// Adds the last backward passes, whose weight parts wait from one half on, to fill the bubbles at the end.
    fn add_cool_down(&mut self) {
        let [first, second] = self.stages;
        let half = self.rank.div_ceil(2);
        for pass in 0..=self.rank {
            for stage in [second, first] {
                let is_split =
                    pass > half || pass == half && (self.rank % 2 == 1 || stage == first);
                if is_split {
                    self.push_input_part(stage);
                } else {
                    self.builder.push_compute(Backward, stage);
                }
            }
        }
        for _ in 0..self.later_ranks {
            self.push_weight_part();
            self.push_input_part(first);
        }
        while !self.pending.is_empty() {
            self.push_weight_part();
        }
    }

    /// Adds the input part of a backward pass; the weight part is pending.
    fn push_input_part(&mut self, stage: usize) {
        let micro_batch = self.builder.push_compute(BackwardInput, stage);
        self.pending.push_back((stage, micro_batch));
    }

    /// Adds the oldest pending weight part, if there is one.
    fn push_weight_part(&mut self) {
        if let Some((stage, micro_batch)) = self.pending.pop_front() {
            let compute = Compute::new(BackwardWeight, stage, micro_batch);
            self.builder.actions.push(compute.into());
        }
    }
}
