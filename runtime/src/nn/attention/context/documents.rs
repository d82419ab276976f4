//! Packed documents: the keys of a source that each query of a rank sees.

use std::ops::Range;

use crate::backend::Band;
use crate::tensor::Extent;

/// Where the documents of each sample begin: of position `i` of a sample, the position of the first token of its document.
/// `[batch, positions]`, whole samples on every rank.
#[derive(Debug, Clone, Copy)]
pub struct DocumentStarts<'a> {
    starts: &'a [u32],
    seq: usize,
}

impl<'a> DocumentStarts<'a> {
    /// Creates the starts of samples of `seq` positions.
    pub fn new(starts: &'a [u32], seq: usize) -> DocumentStarts<'a> {
        debug_assert_eq!(starts.len() % seq.max(1), 0, "starts of whole samples");
        DocumentStarts { starts, seq }
    }

    /// Returns the positions of the document at `position` of `sample`.
    fn document(&self, sample: usize, position: usize) -> Range<usize> {
        let starts = &self.starts[sample * self.seq..(sample + 1) * self.seq];
        let start = starts[position];
        let end = starts.partition_point(|other| *other <= start);
        start as usize..end
    }
}

/// The positions that each query of a rank sees: those of its document within the band.
pub struct VisiblePositions {
    /// `[batch, queries]`.
    positions: Vec<Range<usize>>,
}

impl VisiblePositions {
    /// Finds the positions that `queries` of `batch` samples see.
    pub fn new(
        batch: usize,
        queries: &Extent,
        documents: &DocumentStarts<'_>,
        band: Band,
    ) -> VisiblePositions {
        let visible = |(sample, position): (usize, usize)| {
            let document = documents.document(sample, position);
            let start = band.before.map_or(0, |before| position.saturating_sub(before));
            let end = band.after.map_or(usize::MAX, |after| position.saturating_add(after + 1));
            document.start.max(start)..document.end.min(end)
        };
        let queries =
            (0..batch).flat_map(|sample| queries.positions().map(move |at| (sample, at)));
        VisiblePositions { positions: queries.map(visible).collect() }
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

    /// Returns the starts of documents with these lengths, which fill a sample.
    fn starts_of(lengths: &[usize]) -> Vec<u32> {
        let mut starts = Vec::new();
        for &length in lengths {
            starts.extend(vec![starts.len() as u32; length]);
        }
        starts
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
                let starts = [starts_of(packing), starts_of(next)].concat();
                let documents = DocumentStarts::new(&starts, 48);
                let part = |rank: usize| Extent::zig_zag(48, rank, ranks);
                for queries in (0..ranks).map(part) {
                    let visible = VisiblePositions::new(2, &queries, &documents, band);
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
