//! The blocks of context-parallel attention: rectangles of one rank's queries and the keys of one source.

use std::ops::Range;

use crate::tensor::Extent;
use meshwright_backend::Band;

/// Some of a rank's queries and some keys of a source, by local index. One call of a kernel computes all their visible
/// pairs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AttentionBlock {
    /// Local indices of the queries.
    pub queries: Range<usize>,
    /// Indices of the keys in their source.
    pub keys: Range<usize>,
    /// The keys that a query sees, by index in the block.
    pub band: Band,
}

impl AttentionBlock {
    /// Creates the block of all queries and all keys of a source.
    pub fn all(queries: &Extent, keys: &Extent) -> AttentionBlock {
        AttentionBlock { queries: 0..queries.local, keys: 0..keys.local, band: Band::ALL }
    }

    /// Returns this block without an offset, if no limit is counted from it.
    fn without_offset(self) -> AttentionBlock {
        match self.band {
            Band { before: None, after: None, .. } => AttentionBlock { band: Band::ALL, ..self },
            _ => self,
        }
    }

    /// Returns this block with the pairs of `next`, if one block has exactly the pairs of both.
    fn merged(&self, next: &AttentionBlock) -> Option<AttentionBlock> {
        let union = |a: &Range<usize>, b: &Range<usize>| a.start..b.end;
        let are_dense = self.band == Band::ALL && next.band == Band::ALL;
        if are_dense && self.queries == next.queries && self.keys.end == next.keys.start {
            let keys = union(&self.keys, &next.keys);
            Some(AttentionBlock { queries: self.queries.clone(), keys, band: Band::ALL })
        } else if are_dense && self.keys == next.keys && self.queries.end == next.queries.start {
            let queries = union(&self.queries, &next.queries);
            Some(AttentionBlock { queries, keys: self.keys.clone(), band: Band::ALL })
        } else {
            None
        }
    }
}

/// Returns the blocks that contain each visible pair of a query and a key exactly once. `band` is that of positions in
/// the whole sequence.
///
/// With causal attention and keys of a rank in zig-zag order these are, as in zig-zag ring attention (Zhu 2024,
/// "ring-flash-attention"): the square below the diagonal for the rank's own keys, all queries and the first half of
/// the keys of an earlier rank, the second half of the queries and all keys of a later rank.
pub(super) fn visible_blocks(queries: &Extent, keys: &Extent, band: Band) -> Vec<AttentionBlock> {
    debug_assert_eq!(
        band.offset, 0,
        "positions of queries and keys count from the start of the sequence"
    );
    // Equal positions ascend on both sides, so comparing indices compares positions.
    if queries.ranges() == keys.ranges() && band == Band::CAUSAL {
        return vec![AttentionBlock { band, ..AttentionBlock::all(queries, keys) }];
    }
    let mut blocks: Vec<AttentionBlock> = Vec::new();
    for queries in runs_of_extent(queries) {
        for keys in runs_of_extent(keys) {
            blocks.extend(visible_block(&queries, &keys, band).map(AttentionBlock::without_offset));
            while let [.., last, next] = &blocks[..]
                && let Some(merged) = last.merged(next)
            {
                blocks.truncate(blocks.len() - 2);
                blocks.push(merged);
            }
        }
    }
    blocks
}

/// Returns the blocks that contain each visible pair of a query and a key exactly once, and whose indices determine the
/// distance of a pair: blocks of consecutive positions.
pub(super) fn consecutive_blocks(
    queries: &Extent,
    keys: &Extent,
    band: Band,
) -> Vec<AttentionBlock> {
    let pairs = runs_of_extent(queries).into_iter().flat_map(|queries| {
        runs_of_extent(keys).map(|keys| visible_block(&queries, &keys, band)).into_iter().flatten()
    });
    pairs.collect()
}

/// Consecutive positions that a rank holds.
struct PositionRun {
    /// Local index of the first one.
    first: usize,
    positions: Range<usize>,
}

fn runs_of_extent(extent: &Extent) -> [PositionRun; 2] {
    let [early, late] = extent.ranges();
    let first = early.len();
    [PositionRun { first: 0, positions: early }, PositionRun { first, positions: late }]
}

/// Returns the smallest block that contains all visible pairs of two runs, or `None` if there are none.
fn visible_block(queries: &PositionRun, keys: &PositionRun, band: Band) -> Option<AttentionBlock> {
    let Band { before, after, .. } = band;
    let minus = |position: usize, distance: Option<usize>| {
        distance.map_or(0, |distance| position.saturating_sub(distance))
    };
    let plus = |position: usize, distance: Option<usize>| {
        distance.map_or(usize::MAX, |distance| position.saturating_add(distance))
    };
    let (q, k) = (&queries.positions, &keys.positions);
    let k = k.start.max(minus(q.start, before))..k.end.min(plus(q.end, after));
    let q = q.start.max(minus(k.start, after))..q.end.min(plus(k.end, before));
    if k.is_empty() || q.is_empty() {
        return None;
    }
    // A side on which every query sees every key is not limited.
    let before = before.filter(|before| q.end - 1 > k.start + before);
    let after = after.filter(|after| q.start + after < k.end - 1);
    let band = Band { offset: q.start as isize - k.start as isize, before, after };
    let local = |positions: Range<usize>, run: &PositionRun| {
        let shift = |position: usize| run.first + position - run.positions.start;
        shift(positions.start)..shift(positions.end)
    };
    Some(AttentionBlock { queries: local(q, queries), keys: local(k, keys), band })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BANDS: [Band; 7] = [
        Band::CAUSAL,
        Band::ALL,
        Band { offset: 0, before: Some(0), after: Some(0) },
        Band { offset: 0, before: Some(2), after: Some(0) },
        Band { offset: 0, before: Some(7), after: Some(0) },
        Band { offset: 0, before: Some(3), after: Some(2) },
        Band { offset: 0, before: None, after: Some(4) },
    ];

    fn sees(band: Band, query: usize, key: usize) -> bool {
        band.before.is_none_or(|before| key + before >= query)
            && band.after.is_none_or(|after| key <= query + after)
    }

    /// Checks that the blocks have every visible pair once, and returns the number of pairs.
    fn check(queries: &Extent, keys: &Extent, band: Band) -> usize {
        for block in consecutive_blocks(queries, keys, band) {
            for (query, key) in [
                (block.queries.start, block.keys.start),
                (block.queries.end - 1, block.keys.end - 1),
            ] {
                let index = (query - block.queries.start) as isize + block.band.offset;
                let distance = (key - block.keys.start) as isize - index;
                let expected = keys.index(key) as isize - queries.index(query) as isize;
                assert_eq!(distance, expected, "{queries:?} {keys:?} {band:?}: {block:?}");
            }
        }
        let pairs = check_blocks(queries, keys, band, consecutive_blocks(queries, keys, band));
        assert_eq!(check_blocks(queries, keys, band, visible_blocks(queries, keys, band)), pairs);
        pairs
    }

    fn check_blocks(
        queries: &Extent,
        keys: &Extent,
        band: Band,
        blocks: Vec<AttentionBlock>,
    ) -> usize {
        let mut counts = vec![0; queries.local * keys.local];
        for block in blocks {
            assert!(!block.queries.is_empty() && !block.keys.is_empty());
            for (index, query) in block.queries.clone().enumerate() {
                for key in block.band.visible(index, block.keys.len()) {
                    counts[query * keys.local + block.keys.start + key] += 1;
                }
            }
        }
        for (index, &count) in counts.iter().enumerate() {
            let (query, key) = (index / keys.local, index % keys.local);
            let is_visible = sees(band, queries.index(query), keys.index(key));
            assert_eq!(count, usize::from(is_visible), "{queries:?} {keys:?} {band:?}");
        }
        counts.iter().sum()
    }

    /// Every number of ranks, exchange of heads among some of them, chunk size and band; keys of every source, and
    /// gathered ones.
    #[test]
    fn every_visible_pair_is_in_one_block() {
        for ranks in 1..=8 {
            for exchanging in (1..=ranks).filter(|exchanging| ranks % exchanging == 0) {
                let parts = ranks / exchanging;
                for (chunk, band) in (1..=4).flat_map(|chunk| BANDS.map(|band| (chunk, band))) {
                    let seq = 2 * ranks * chunk;
                    for part in 0..parts {
                        let queries = Extent::zig_zag(seq, part, parts);
                        let sources = (0..parts).map(|source| Extent::zig_zag(seq, source, parts));
                        let pairs: usize =
                            sources.map(|source| check(&queries, &source, band)).sum();
                        assert_eq!(check(&queries, &Extent::whole(seq), band), pairs);
                    }
                }
            }
        }
    }

    #[test]
    fn causal_work_is_equal_on_all_ranks_in_each_hop() {
        for (ranks, chunk) in (1..=8).flat_map(|ranks| (1..=4).map(move |chunk| (ranks, chunk))) {
            let seq = 2 * ranks * chunk;
            let part = |rank: usize| Extent::zig_zag(seq, rank, ranks);
            for hop in 0..ranks {
                let pairs = |rank: usize| {
                    check(&part(rank), &part((rank + ranks - hop) % ranks), Band::CAUSAL)
                };
                let local = 2 * chunk;
                let expected = if hop == 0 { local * (local + 1) / 2 } else { local * local / 2 };
                assert!((0..ranks).all(|rank| pairs(rank) == expected));
            }
        }
    }

    /// No hop of causal attention needs more than one block, and gathered keys need one block per run of queries.
    #[test]
    fn causal_blocks_are_as_few_as_possible() {
        let part = |rank: usize| Extent::zig_zag(48, rank, 4);
        let block = |queries, keys, band| vec![AttentionBlock { queries, keys, band }];
        let blocks = |keys: &Extent| visible_blocks(&part(1), keys, Band::CAUSAL);
        assert_eq!(blocks(&part(1)), block(0..12, 0..12, Band::CAUSAL));
        assert_eq!(blocks(&part(0)), block(0..12, 0..6, Band::ALL));
        assert_eq!(blocks(&part(3)), block(6..12, 0..12, Band::ALL));
        let causal_at = |offset| Band { offset, before: None, after: Some(0) };
        let mut gathered = block(0..6, 0..12, causal_at(6));
        gathered.extend(block(6..12, 0..42, causal_at(36)));
        assert_eq!(blocks(&Extent::whole(48)), gathered);
    }
}
