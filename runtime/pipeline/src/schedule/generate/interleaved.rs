//! Interleaved 1F1B, for any number of micro-batches.

use crate::schedule::{Action, Compute, Work};

/// Micro-batches go through the chunks of a rank in groups. Each group has at least as many micro-batches as there are
/// ranks, if the step has.
pub(super) fn interleaved(
    ranks: usize,
    chunks: usize,
    rank: usize,
    micro_batches: usize,
) -> Vec<Action> {
    let groups = group_sizes(ranks, micro_batches);
    let order = |work: Work| -> Vec<Action> {
        let mut actions = Vec::with_capacity(chunks * micro_batches);
        let mut start = 0;
        for group in &groups {
            for step in 0..chunks {
                let chunk = if work == Work::Forward { step } else { chunks - 1 - step };
                let stage = chunk * ranks + rank;
                let members = start..start + group;
                actions.extend(members.map(|i| Action::from(Compute::new(work, stage, i))));
            }
            start += group;
        }
        actions
    };
    let (forward, backward) = (order(Work::Forward), order(Work::Backward));
    let warm_up = forward.len().min(2 * (ranks - 1 - rank) + (chunks - 1) * groups[0]);
    let (first, rest) = forward.split_at(warm_up);
    let (paired, last) = backward.split_at(rest.len());
    let pairs = rest.iter().zip(paired).flat_map(|(forward, backward)| [*forward, *backward]);
    first.iter().copied().chain(pairs).chain(last.iter().copied()).collect()
}

/// The sizes of the groups: as even as possible, larger ones first.
pub(in crate::schedule) fn group_sizes(ranks: usize, micro_batches: usize) -> Vec<usize> {
    let groups = (micro_batches / ranks).max(1);
    let (size, larger) = (micro_batches / groups, micro_batches % groups);
    (0..groups).map(|group| size + usize::from(group < larger)).collect()
}
