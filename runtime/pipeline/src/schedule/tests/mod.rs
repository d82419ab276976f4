pub(crate) mod csv;
mod formulas;
mod lockstep;
mod lowering;
mod receipts;
mod split;
mod verifier;

use super::{Compute, Schedule, ScheduleKind, Work};

/// Every named schedule on a range of ranks and micro-batches.
fn all_schedules() -> impl Iterator<Item = Schedule> {
    let kinds = ScheduleKind::ALL.into_iter().flat_map(|kind| match kind {
        ScheduleKind::Interleaved => vec![(kind, 2), (kind, 3), (kind, 4)],
        _ => vec![(kind, kind.default_chunks())],
    });
    kinds.flat_map(|(kind, chunks)| {
        let micro_batches = || (1..=20).chain([32]);
        [1, 2, 3, 4, 5, 8].into_iter().flat_map(move |ranks| {
            micro_batches().map(move |count| kind.generate(ranks, chunks, count).unwrap())
        })
    })
}

/// The schedule of this name on `ranks`, with the default number of chunks.
pub fn named(kind: ScheduleKind, ranks: usize, micro_batches: usize) -> Schedule {
    kind.generate(ranks, kind.default_chunks(), micro_batches).unwrap()
}

/// Numbers that look random, the same in each run (xorshift, Marsaglia 2003).
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// A random topological order of the computations of a random pipeline, with whole or divided backward passes.
pub fn random_order(numbers: &mut Numbers, backward: Work) -> Schedule {
    let (ranks, micro_batches) = (2 + numbers.below(3), 1 + numbers.below(6));
    let stages = ranks * (1 + numbers.below(2));
    let placement: Vec<usize> = (0..stages).map(|stage| stage % ranks).collect();
    let mut schedule =
        Schedule { ranks: vec![Vec::new(); ranks], placement, micro_batches, kind: None };
    let mut open: Vec<Compute> =
        (0..micro_batches).map(|i| Compute::new(Work::Forward, 0, i)).collect();
    while !open.is_empty() {
        let next = open.swap_remove(numbers.below(open.len()));
        let Compute { work, stage, micro_batch } = next;
        schedule.ranks[schedule.placement[stage]].push(next.into());
        let of = |work, stage| Compute::new(work, stage, micro_batch);
        match work {
            Work::Forward if stage + 1 < stages => open.push(of(Work::Forward, stage + 1)),
            Work::Forward => open.push(of(backward, stage)),
            _ if work.gives_input_gradient() && stage > 0 => open.push(of(backward, stage - 1)),
            _ => {}
        }
        if work == Work::BackwardInput {
            open.push(of(Work::BackwardWeight, stage));
        }
    }
    schedule
}

/// The schedule with a dropped, a doubled or two swapped actions.
pub fn mutated(schedule: &Schedule, numbers: &mut Numbers) -> Schedule {
    let mut mutated = schedule.clone();
    let actions = &mut mutated.ranks[numbers.below(schedule.ranks.len())];
    let (first, second) = (numbers.below(actions.len()), numbers.below(actions.len()));
    match numbers.below(3) {
        0 => drop(actions.remove(first)),
        1 => actions.insert(second, actions[first]),
        _ => actions.swap(first, second),
    }
    mutated
}
