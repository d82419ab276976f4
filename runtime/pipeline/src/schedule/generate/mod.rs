//! Generators of the named schedules, for any number of ranks and micro-batches.

mod dualpipe;
mod interleaved;
mod simple;
mod zero_bubble;

#[cfg(test)]
pub(super) use interleaved::group_sizes;

use super::{Action, Compute, Schedule, ScheduleError, ScheduleKind, Work};

impl ScheduleKind {
    /// Generates the schedule of `ranks` ranks with `chunks` stages each, for a step of `micro_batches`.
    ///
    /// # Errors
    /// If a number is 0, or the schedule does not have that many chunks per rank.
    pub fn generate(
        self,
        ranks: usize,
        chunks: usize,
        micro_batches: usize,
    ) -> Result<Schedule, ScheduleError> {
        let numbers =
            [("the number of ranks", ranks), ("the number of micro-batches", micro_batches)];
        if let Some((what, _)) = numbers.into_iter().find(|(_, number)| *number == 0) {
            return Err(ScheduleError::Zero { what });
        }
        let needs = match self {
            ScheduleKind::GPipe | ScheduleKind::OneFOneB | ScheduleKind::ZeroBubbleH1 => {
                (chunks != 1).then_some("one stage")
            }
            ScheduleKind::Interleaved => (chunks < 2).then_some("two or more stages"),
            ScheduleKind::ZeroBubbleV | ScheduleKind::DualPipeV => {
                (chunks != 2).then_some("two stages")
            }
        };
        if let Some(needs) = needs {
            return Err(ScheduleError::Chunks { kind: self, needs, given: chunks });
        }
        Ok(schedule(self, ranks, chunks, micro_batches))
    }
}

/// The schedule of `kind`; the numbers are ones that it can have.
fn schedule(kind: ScheduleKind, ranks: usize, chunks: usize, micro_batches: usize) -> Schedule {
    let stages = ranks * chunks;
    let looped = (0..stages).map(|stage| stage % ranks).collect();
    let placement = match kind {
        ScheduleKind::ZeroBubbleV | ScheduleKind::DualPipeV => {
            (0..stages).map(|stage| stage.min(stages - 1 - stage)).collect()
        }
        _ => looped,
    };
    let of_rank = |rank| match kind {
        ScheduleKind::GPipe => simple::gpipe(rank, micro_batches),
        ScheduleKind::OneFOneB => simple::one_f_one_b(ranks, rank, micro_batches),
        ScheduleKind::Interleaved => interleaved::interleaved(ranks, chunks, rank, micro_batches),
        ScheduleKind::ZeroBubbleH1 => zero_bubble::h1(ranks, rank, micro_batches),
        ScheduleKind::ZeroBubbleV => zero_bubble::zero_bubble_v(ranks, rank, micro_batches),
        ScheduleKind::DualPipeV => dualpipe::dualpipev(ranks, rank, micro_batches),
    };
    let ranks = (0..ranks).map(of_rank).collect();
    Schedule { ranks, placement, micro_batches, kind: Some(kind) }
}

/// The actions of a rank under construction, with the next micro-batch of each stage and kind of work.
#[derive(Default)]
struct ScheduleBuilder {
    actions: Vec<Action>,
    next: std::collections::HashMap<(Work, usize), usize>,
}

impl ScheduleBuilder {
    /// Adds the next micro-batch of `work` on `stage`, and returns it.
    fn push_compute(&mut self, work: Work, stage: usize) -> usize {
        let compute = self.next_compute(work, stage);
        self.actions.push(compute.into());
        compute.micro_batch
    }

    /// Adds two computations that may overlap.
    fn overlap(&mut self, first: (Work, usize), second: (Work, usize)) {
        let both = [first, second].map(|(work, stage)| self.next_compute(work, stage));
        self.actions.push(Action::Overlap(both));
    }

    fn next_compute(&mut self, work: Work, stage: usize) -> Compute {
        // Whole backward passes and their input parts are of the same micro-batches.
        let counted = if work == Work::Backward { Work::BackwardInput } else { work };
        let next = self.next.entry((counted, stage)).or_default();
        *next += 1;
        Compute::new(work, stage, *next - 1)
    }

    /// The actions, without the actions of micro-batches beyond the last one.
    fn up_to(self, micro_batches: usize) -> Vec<Action> {
        let exists = |compute: &Compute| compute.micro_batch < micro_batches;
        let kept = |action: Action| match action {
            Action::Overlap([first, second]) => match (exists(&first), exists(&second)) {
                (true, true) => Some(action),
                (true, false) => Some(first.into()),
                (false, true) => Some(second.into()),
                (false, false) => None,
            },
            _ => action.computes().iter().all(exists).then_some(action),
        };
        self.actions.into_iter().filter_map(kept).collect()
    }
}
