//! Balance of attention over the ranks of `cp`. Packed documents are unequal work for the positions of a sequence, and
//! a load imbalance makes ranks wait for the straggler.

use crate::comm::Site;
use crate::data::MicroBatch;
use crate::layout::{AxisId, AxisSet};
use crate::nn::AttentionSizes;
use crate::tensor::{Extent, Rank};

/// Counts the pairs of a query and a key that it sees, on each rank of `cp`: by mask, window and documents. Keys that a
/// model hides by its own padding count as seen, and keys of cross attention as if they were in the sequence of the
/// queries.
pub struct AttentionBalance {
    seq: usize,
    /// Ranks of `cp`.
    ranks: usize,
    kinds: Vec<AttentionKind>,
    /// Work in a row of one document.
    whole_row: Vec<u64>,
}

/// Attentions whose queries see the same positions, and whose ranks have the same ones.
#[derive(Debug, Clone, Copy)]
struct AttentionKind {
    /// Positions that a query sees before its own, and after it.
    before: usize,
    after: usize,
    /// Ranks among which the positions are distributed.
    position_ranks: usize,
    /// Work of a rank for each pair: its number of heads, times the ranks of `cp`.
    work: u64,
}

/// Work in attention of the micro-batches of a step on some ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct AttentionWork {
    /// Work of all ranks.
    total: u64,
    /// Work of all ranks, if each had as much as the one of `cp` with the most. The others wait for it in each
    /// micro-batch.
    longest: u64,
}

impl AttentionBalance {
    /// Creates the counts of a model with these attentions on sequences of `seq`; `None` without the axis `cp`.
    pub fn new(rank: &Rank, attentions: &[AttentionSizes], seq: usize) -> Option<AttentionBalance> {
        let ranks = rank.degree(AxisId::Cp);
        (ranks > 1).then(|| AttentionBalance::over_ranks(ranks, attentions, seq))
    }

    fn over_ranks(ranks: usize, attentions: &[AttentionSizes], seq: usize) -> AttentionBalance {
        let mut kinds: Vec<AttentionKind> = Vec::new();
        for sizes in attentions {
            let kind = AttentionKind::of_sizes(sizes, seq);
            match kinds.iter_mut().find(|other| other.has_pairs_of(&kind)) {
                Some(other) => other.work += kind.work,
                None => kinds.push(kind),
            }
        }
        let mut balance = AttentionBalance { seq, ranks, kinds, whole_row: Vec::new() };
        balance.whole_row = balance.work_of_row(&vec![0; seq]);
        balance
    }

    /// Returns the mean work over the ranks of `cp` by the largest, in the `micro_batches` of a step on all data ranks.
    /// Every rank calls it.
    pub fn of_step(&self, rank: &Rank, micro_batches: &[MicroBatch<'_>]) -> f64 {
        let work = self.work(micro_batches);
        let mut sums = [work.total as f64, work.longest as f64];
        // Rows of one document are all alike.
        if micro_batches.iter().any(|micro_batch| micro_batch.starts.is_some()) {
            let site = Site::new("attention_balance");
            rank.all_reduce_f64(AxisSet::DATA, &site, &mut sums);
            sums = sums.map(|sum| rank.mean_over_replicas(&site, sum));
        }
        if sums[1] > 0.0 { sums[0] / sums[1] } else { 1.0 }
    }

    /// Returns the work of the micro-batches of this data rank.
    fn work(&self, micro_batches: &[MicroBatch<'_>]) -> AttentionWork {
        let mut work = AttentionWork::default();
        for micro_batch in micro_batches {
            let mut of_ranks = vec![0; self.ranks];
            let mut add =
                |row: &[u64]| of_ranks.iter_mut().zip(row).for_each(|(sum, own)| *sum += own);
            match micro_batch.starts {
                None => micro_batch.rows.clone().for_each(|_| add(&self.whole_row)),
                Some(starts) => {
                    starts.chunks_exact(self.seq).for_each(|row| add(&self.work_of_row(row)));
                }
            }
            work.total += of_ranks.iter().sum::<u64>();
            work.longest += self.ranks as u64 * of_ranks.iter().max().copied().unwrap_or(0);
        }
        work
    }

    /// Returns the work of each rank of `cp` in a row whose documents begin at `starts`.
    fn work_of_row(&self, starts: &[u32]) -> Vec<u64> {
        let mut ends = vec![starts.len(); starts.len()];
        for position in (1..starts.len()).rev() {
            let begins = starts[position] as usize == position;
            ends[position - 1] = if begins { position } else { ends[position] };
        }
        let mut of_ranks = vec![0; self.ranks];
        for kind in &self.kinds {
            let keys_of = |query: usize| {
                let first = query.saturating_sub(kind.before).max(starts[query] as usize);
                let end = query.saturating_add(kind.after + 1).min(ends[query]);
                (end - first) as u64
            };
            // Neighbors exchange heads, so they have the same positions.
            let neighbors = self.ranks / kind.position_ranks;
            for (index, own) in of_ranks.chunks_exact_mut(neighbors).enumerate() {
                let queries = Extent::zig_zag(starts.len(), index, kind.position_ranks);
                let pairs: u64 = queries.positions().map(keys_of).sum();
                own.iter_mut().for_each(|sum| *sum += kind.work * pairs);
            }
        }
        of_ranks
    }
}

impl AttentionKind {
    fn of_sizes(sizes: &AttentionSizes, seq: usize) -> AttentionKind {
        let AttentionSizes { heads, window, is_causal, position_ranks, .. } = *sizes;
        let (before, after) = match (window, is_causal) {
            (None, true) => (seq, 0),
            (None, false) => (seq, seq),
            (Some(window), true) => (window - 1, 0),
            (Some(window), false) => (window / 2, window / 2),
        };
        // Of `n` ranks that exchange heads, each has `1 / n` of them.
        let work = (heads * position_ranks) as u64;
        AttentionKind { before, after, position_ranks, work }
    }

    fn has_pairs_of(&self, other: &AttentionKind) -> bool {
        let pairs = |kind: &AttentionKind| (kind.before, kind.after, kind.position_ranks);
        pairs(self) == pairs(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAUSAL: AttentionSizes = AttentionSizes {
        heads: 4,
        head_dim: 8,
        value_dim: 8,
        window: None,
        is_causal: true,
        position_ranks: 1,
    };

    /// The starts of documents with these lengths.
    fn starts(lengths: &[usize]) -> Vec<u32> {
        let mut starts = Vec::new();
        for &length in lengths {
            starts.extend(vec![starts.len() as u32; length]);
        }
        starts
    }

    /// Counts pairs one by one, of the ranks that zig-zag order gives the positions to.
    fn counted(ranks: usize, attentions: &[AttentionSizes], rows: &[Vec<u32>]) -> Vec<u64> {
        let mut of_ranks = vec![0; ranks];
        for (row, sizes) in rows.iter().flat_map(|row| attentions.iter().map(move |s| (row, s))) {
            let parts = sizes.position_ranks;
            let chunk = row.len() / (2 * parts);
            for (query, key) in (0..row.len()).flat_map(|q| (0..row.len()).map(move |k| (q, k))) {
                let reach = match (sizes.window, sizes.is_causal) {
                    (None, _) => row.len(),
                    (Some(window), true) => window - 1,
                    (Some(window), false) => window / 2,
                };
                let is_visible = row[query] == row[key]
                    && query.abs_diff(key) <= reach
                    && (key <= query || !sizes.is_causal);
                if is_visible {
                    let number = query / chunk;
                    let part = number.min(2 * parts - 1 - number);
                    let neighbors = ranks / parts;
                    let own = part * neighbors..(part + 1) * neighbors;
                    // Heads in units of `1 / ranks`.
                    of_ranks[own].iter_mut().for_each(|sum| *sum += (sizes.heads * parts) as u64);
                }
            }
        }
        of_ranks
    }

    #[test]
    fn work_is_that_of_counted_pairs() {
        let kinds = |position_ranks: usize| {
            let sizes = AttentionSizes { position_ranks, ..CAUSAL };
            vec![
                vec![sizes],
                vec![AttentionSizes { is_causal: false, ..sizes }],
                vec![AttentionSizes { window: Some(5), ..sizes }],
                vec![AttentionSizes { window: Some(9), is_causal: false, ..sizes }],
                // Layers of two kinds; for one kind, each rank has whole sequences.
                vec![sizes, AttentionSizes { window: Some(3), ..sizes }, CAUSAL, sizes],
            ]
        };
        let packings: [&[usize]; 5] = [&[48], &[1, 47], &[5, 1, 17, 25], &[24, 24], &[6, 12, 30]];
        let rows = packings.map(starts);
        for (ranks, parts) in [(2, 2), (2, 1), (3, 3), (4, 4), (4, 2), (4, 1), (8, 8), (8, 2)] {
            for attentions in kinds(parts) {
                let balance = AttentionBalance::over_ranks(ranks, &attentions, 48);
                let all = rows.concat();
                let batch = |index: usize, of: usize| {
                    let rows = index * 5 / of..(index + 1) * 5 / of;
                    let starts = Some(&all[rows.start * 48..rows.end * 48]);
                    MicroBatch {
                        tokens: &[],
                        targets: &[],
                        starts,
                        streams: None,
                        rows,
                        place: [index, of],
                    }
                };
                let (mut total, mut longest) = (0, 0);
                for micro_batch in [batch(0, 2), batch(1, 2)] {
                    let expected = counted(ranks, &attentions, &rows[micro_batch.rows.clone()]);
                    let most = expected.iter().max().unwrap() * ranks as u64;
                    let sum = expected.iter().sum();
                    assert_eq!(
                        balance.work(&[micro_batch]),
                        AttentionWork { total: sum, longest: most },
                        "{ranks} {attentions:?}"
                    );
                    (total, longest) = (total + sum, longest + most);
                }
                let work = balance.work(&[batch(0, 2), batch(1, 2)]);
                assert_eq!(work, AttentionWork { total, longest });
                if parts == 1 && attentions.len() == 1 {
                    assert_eq!(total, longest, "whole sequences are balanced");
                }
            }
        }
    }

    #[test]
    fn whole_rows_of_causal_attention_are_balanced() {
        for ranks in 1..=8 {
            let sizes = AttentionSizes { position_ranks: ranks, ..CAUSAL };
            let balance = AttentionBalance::over_ranks(ranks, &[sizes, sizes], 6 * ranks);
            let rows = MicroBatch {
                tokens: &[],
                targets: &[],
                starts: None,
                streams: None,
                rows: 3..8,
                place: [0, 1],
            };
            let work = balance.work(&[rows]);
            assert!(work.total > 0 && work.total == work.longest, "{ranks}: {work:?}");
        }
    }
}
