//! The keys that queries see in rows of several documents or with padding, on a rank that has some positions of the
//! rows.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use meshwright_backend::{Band, Buffer};
use meshwright_mesh::Extent;

/// The positions that the query of each token of whole rows may see, on the host: those from a start to an end in its
/// row.
///
/// A rank that holds some positions of its rows only takes the documents of the other positions from here, so ranks
/// exchange none.
pub struct VisibleRows {
    /// Positions of a row.
    pub(crate) seq: usize,
    pub(crate) starts: Vec<u32>,
    ends: Vec<u32>,
    /// The ranges that were computed, on the device.
    pub(crate) key_ranges: RefCell<Vec<(KeyBlock, KeyRangeBuffers)>>,
}

/// First visible key and end of the visible keys of each query of a block: u32 `[batch, queries]`, by the keys' number
/// in the block's part.
pub(crate) type KeyRangeBuffers = [Arc<Buffer>; 2];

/// Queries and keys of a sequence, by their positions in it, and the positions that a query sees.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyBlock {
    pub(crate) queries: Extent,
    pub(crate) keys: Extent,
    pub(crate) band: Band,
    /// The keys of the block, by their number in `keys`.
    pub(crate) part: Range<usize>,
}

impl VisibleRows {
    /// Creates the visible ranges of rows of `seq` positions.
    pub(crate) fn new(seq: usize, starts: Vec<u32>, ends: Vec<u32>) -> VisibleRows {
        VisibleRows { seq, starts, ends, key_ranges: RefCell::default() }
    }

    /// Returns the key ranges of a block on the host: the keys that a query may see, in the band.
    ///
    /// They are one range, since the keys are in ascending order.
    ///
    /// # Panics
    /// If the rows have another number of positions than the sequence.
    pub(crate) fn find_key_ranges(&self, block: &KeyBlock) -> [Vec<u32>; 2] {
        let KeyBlock { queries, keys, band, part } = block;
        let number_of = |position: usize| {
            (keys.count_before(position).clamp(part.start, part.end) - part.start) as u32
        };
        let seq = queries.global;
        assert_eq!(self.seq, seq, "the visible positions belong to rows of another length");
        let samples = self.starts.chunks(seq).zip(self.ends.chunks(seq));
        let places = samples.flat_map(|(starts, ends)| {
            queries.positions().map(move |position| {
                let first = band.before.map_or(0, |before| position.saturating_sub(before));
                let end = band.after.map_or(usize::MAX, |after| position.saturating_add(after + 1));
                [first.max(starts[position] as usize), end.min(ends[position] as usize)]
            })
        });
        let (first, end) = places.map(|[first, end]| (number_of(first), number_of(end))).unzip();
        [first, end]
    }

    /// Returns the number of blocks whose ranges have been computed.
    #[cfg(test)]
    pub(crate) fn computed_blocks(&self) -> usize {
        self.key_ranges.borrow().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the starts and ends of documents with these lengths, which fill a sample.
    fn ranges_of(lengths: &[usize]) -> [Vec<u32>; 2] {
        let [mut starts, mut ends] = [Vec::new(), Vec::new()];
        for &length in lengths {
            let start = starts.len();
            starts.extend(vec![start as u32; length]);
            ends.extend(vec![(start + length) as u32; length]);
        }
        [starts, ends]
    }

    /// Every number of ranks, packing and band, of each rank's queries and the keys of each source and of all, against
    /// comparisons of positions.
    #[test]
    fn key_ranges_show_one_document_in_the_band() {
        let band = |before, after| Band { offset: 0, before, after };
        let bands = [
            Band::CAUSAL,
            Band::ALL,
            band(Some(3), Some(0)),
            band(Some(2), Some(5)),
            band(None, Some(1)),
        ];
        let packings: [&[usize]; 6] =
            [&[48], &[1, 47], &[5, 1, 17, 25], &[24, 24], &[6, 12, 30], &[1; 48]];
        for (ranks, band) in [1, 2, 3, 4, 6, 8].into_iter().flat_map(|p| bands.map(|b| (p, b))) {
            for (packing, next) in packings.iter().zip(packings.iter().cycle().skip(1)) {
                let samples = [ranges_of(packing), ranges_of(next)];
                let [starts, ends] =
                    [0, 1].map(|which| [&samples[0][which][..], &samples[1][which]].concat());
                let documents = VisibleRows::new(48, starts, ends);
                let part = |rank: usize| Extent::zig_zag(48, rank, ranks);
                for queries in (0..ranks).map(part) {
                    for keys in (0..ranks).map(part).chain([Extent::whole(48)]) {
                        let part = 0..keys.local;
                        check(&KeyBlock { queries, keys, band, part }, &documents);
                        let part = keys.local / 3..keys.local - 1;
                        check(&KeyBlock { queries, keys, band, part }, &documents);
                    }
                }
            }
        }
    }

    fn check(block: &KeyBlock, visible: &VisibleRows) {
        let KeyBlock { queries, keys, band, part } = block;
        let [first, end] = visible.find_key_ranges(block);
        assert_eq!((first.len(), end.len()), (2 * queries.local, 2 * queries.local));
        for (index, (first, end)) in first.iter().zip(&end).enumerate() {
            let (sample, query) = (index / queries.local, queries.index(index % queries.local));
            let start_of = |position: usize| visible.starts[sample * 48 + position];
            let sees = |key: usize| {
                start_of(key) == start_of(query)
                    && band.before.is_none_or(|before| key + before >= query)
                    && band.after.is_none_or(|after| key <= query + after)
            };
            let seen: Vec<usize> = part.clone().filter(|&key| sees(keys.index(key))).collect();
            let shown: Vec<usize> = (*first..*end).map(|key| part.start + key as usize).collect();
            assert_eq!(shown, seen, "{block:?} {query}");
        }
    }
}
