//! Splits stages into smaller ones on the same rank.

use std::ops::Range;

use super::{Action, Compute, Schedule, Work};

impl Schedule {
    /// Splits each stage into as many consecutive stages on its rank as `counts` says, whose passes follow one another.
    /// Without messages and reductions, which [`lower_schedule`](super::lower_schedule()) adds.
    ///
    /// # Panics
    /// If the number of counts is not that of the stages.
    pub fn split_stages(&self, counts: &[usize]) -> Schedule {
        assert_eq!(counts.len(), self.stages(), "a count for each stage");
        let start = |stage: usize| counts[..stage].iter().sum::<usize>();
        let parts = |stage: usize| start(stage)..start(stage) + counts[stage];
        let split = |actions: &Vec<Action>| {
            actions.iter().flat_map(|action| split_action(action, parts)).collect()
        };
        let placement = self.placement.iter().zip(counts);
        let placement = placement.flat_map(|(rank, count)| vec![*rank; *count]).collect();
        let ranks = self.ranks.iter().map(split).collect();
        Schedule { ranks, placement, micro_batches: self.micro_batches, kind: None }
    }
}

fn split_action(action: &Action, parts: impl Fn(usize) -> Range<usize>) -> Vec<Action> {
    match action {
        Action::Unshard(stage) => parts(*stage).map(Action::Unshard).collect(),
        Action::Reshard(stage) => parts(*stage).map(Action::Reshard).collect(),
        Action::Send(_) | Action::Recv(_) | Action::ReduceGrad(_) => Vec::new(),
        Action::Compute(_) | Action::Overlap(_) => {
            let computes = action.computes().iter();
            computes.flat_map(|compute| split_compute(*compute, parts(compute.stage))).collect()
        }
    }
}

/// Forward passes ascend, backward passes descend.
fn split_compute(compute: Compute, parts: Range<usize>) -> Vec<Action> {
    let of = |stage: usize| Action::from(Compute { stage, ..compute });
    match compute.work {
        Work::Forward => parts.map(of).collect(),
        Work::Backward | Work::BackwardInput | Work::BackwardWeight => {
            parts.rev().map(of).collect()
        }
    }
}
