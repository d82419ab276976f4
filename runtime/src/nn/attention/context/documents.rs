//! Packed documents: the keys of a source that each query of a rank sees.

use std::ops::Range;
use std::sync::Arc;

use crate::backend::{Band, Buffer};
use crate::tensor::Extent;

/// The document of each query: the position of its first token, and the position after its last one. Both are u32, `[batch,
/// queries]`.
#[derive(Clone)]
pub(in crate::nn::attention) struct DocumentRanges {
    pub starts: Arc<Buffer>,
    pub ends: Arc<Buffer>,
}

/// The positions that each query of a rank sees: those of its document within the band.
pub(super) struct VisiblePositions {
    /// `[batch, queries]`.
    positions: Vec<Range<usize>>,
}

impl VisiblePositions {
    /// Finds the positions that `queries` see of the positions of their `documents`.
    pub fn new(queries: &Extent, documents: &DocumentRanges, band: Band) -> VisiblePositions {
        let [starts, ends] =
            [&documents.starts, &documents.ends].map(|ids| ids.view().to_vec::<u32>());
        let samples = starts.chunks(queries.local).zip(ends.chunks(queries.local));
        let visible = |(position, (start, end)): (usize, (&u32, &u32))| {
            let first = band.before.map_or(0, |before| position.saturating_sub(before));
            let last = band.after.map_or(usize::MAX, |after| position.saturating_add(after + 1));
            first.max(*start as usize)..last.min(*end as usize)
        };
        let visible_in = |(starts, ends): (&[u32], &[u32])| {
            queries.positions().zip(starts.iter().zip(ends)).map(visible).collect::<Vec<_>>()
        };
        VisiblePositions { positions: samples.flat_map(visible_in).collect() }
    }

    /// Returns, of each query, the first key of a source that it sees and the end of those that it sees.
    ///
    /// They are one range, since a source has its keys in ascending order.
    pub fn key_ranges(&self, keys: &Extent) -> [Vec<u32>; 2] {
        let keys_before = |position: usize| {
            let [early, late] = keys.ranges();
            let count = |run: Range<usize>| position.clamp(run.start, run.end) - run.start;
            (count(early) + count(late)) as u32
        };
        let first = self.positions.iter().map(|range| keys_before(range.start));
        let end = self.positions.iter().map(|range| keys_before(range.end));
        [first.collect(), end.collect()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{CachingAllocator, Category};

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
        let allocator = CachingAllocator::new();
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
                let starts = [&samples[0][0][..], &samples[1][0]].concat();
                let part = |rank: usize| Extent::zig_zag(48, rank, ranks);
                for queries in (0..ranks).map(part) {
                    let of_queries = |which: usize| {
                        let of_sample = |sample: &[Vec<u32>; 2]| {
                            queries.positions().map(|at| sample[which][at]).collect::<Vec<_>>()
                        };
                        let ids: Vec<u32> = samples.iter().flat_map(of_sample).collect();
                        Arc::new(allocator.copy_of(&ids, Category::Activations))
                    };
                    let documents = DocumentRanges { starts: of_queries(0), ends: of_queries(1) };
                    let visible = VisiblePositions::new(&queries, &documents, band);
                    for keys in (0..ranks).map(part).chain([Extent::whole(48)]) {
                        check(&queries, &keys, &starts, band, &visible);
                    }
                }
            }
        }
    }

    fn check(
        queries: &Extent,
        keys: &Extent,
        starts: &[u32],
        band: Band,
        visible: &VisiblePositions,
    ) {
        let [first, end] = visible.key_ranges(keys);
        for (index, (first, end)) in first.iter().zip(&end).enumerate() {
            let (sample, query) = (index / queries.local, queries.index(index % queries.local));
            let start_of = |position: usize| starts[sample * 48 + position];
            let sees = |key: usize| {
                start_of(key) == start_of(query)
                    && band.before.is_none_or(|before| key + before >= query)
                    && band.after.is_none_or(|after| key <= query + after)
            };
            let seen: Vec<u32> =
                (0..keys.local as u32).filter(|&key| sees(keys.index(key as usize))).collect();
            assert_eq!((*first..*end).collect::<Vec<_>>(), seen, "{queries:?} {keys:?} {query}");
        }
    }
}
