//! Packed documents: the keys of a source that each query of a rank sees.

use crate::tensor::{KeyBlock, VisibleRows};

/// Returns, for each query of each sample, the first key of a block that it sees and the end of those that it sees, by their
/// number in the block: the keys of its document in the band.
///
/// They are one range, since a source has its keys in ascending order.
///
/// # Panics
/// If the rows have another number of positions than the sequence.
pub(super) fn find_key_ranges(block: &KeyBlock, visible: &VisibleRows) -> [Vec<u32>; 2] {
    let KeyBlock { queries, keys, part, band } = block;
    let seq = queries.global;
    assert_eq!(visible.seq, seq, "the visible positions are those of rows of another length");
    let keys_before = |position: usize| {
        (keys.count_before(position).clamp(part.start, part.end) - part.start) as u32
    };
    let samples = visible.starts.chunks(seq).zip(visible.ends.chunks(seq));
    let places = samples.flat_map(|(starts, ends)| {
        queries.positions().map(move |position| {
            let first = band.before.map_or(0, |before| position.saturating_sub(before));
            let end = band.after.map_or(usize::MAX, |after| position.saturating_add(after + 1));
            [first.max(starts[position] as usize), end.min(ends[position] as usize)]
        })
    });
    let (first, end) = places.map(|[first, end]| (keys_before(first), keys_before(end))).unzip();
    [first, end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Band;
    use crate::tensor::Extent;

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
                let held = |rank: usize| Extent::zig_zag(48, rank, ranks);
                for queries in (0..ranks).map(held) {
                    for keys in (0..ranks).map(held).chain([Extent::whole(48)]) {
                        for part in [0..keys.local, 0..keys.local / 2, 1..keys.local - 1] {
                            check(&KeyBlock { queries, keys, part, band }, &documents);
                        }
                    }
                }
            }
        }
    }

    fn check(block: &KeyBlock, visible: &VisibleRows) {
        let KeyBlock { queries, keys, part, band } = block;
        let [first, end] = find_key_ranges(block, visible);
        assert_eq!((first.len(), end.len()), (2 * queries.local, 2 * queries.local));
        for (index, (first, end)) in first.iter().zip(&end).enumerate() {
            let (sample, query) = (index / queries.local, queries.index(index % queries.local));
            let start_of = |position: usize| visible.starts[sample * 48 + position];
            let sees = |key: usize| {
                start_of(key) == start_of(query)
                    && band.before.is_none_or(|before| key + before >= query)
                    && band.after.is_none_or(|after| key <= query + after)
            };
            let keys_of_part = 0..part.len() as u32;
            let position = |key: u32| keys.index(part.start + key as usize);
            let seen: Vec<u32> = keys_of_part.filter(|&key| sees(position(key))).collect();
            assert_eq!((*first..*end).collect::<Vec<_>>(), seen, "{queries:?} {keys:?} {query}");
        }
    }
}
