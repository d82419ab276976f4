mod csv;
mod formulas;
mod lowering;
mod verifier;

use super::{Schedule, ScheduleKind};

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
fn named(kind: ScheduleKind, ranks: usize, micro_batches: usize) -> Schedule {
    kind.generate(ranks, kind.default_chunks(), micro_batches).unwrap()
}

/// Numbers that look random, the same in each run (xorshift, Marsaglia 2003).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}
