//! The keys that each query sees.

use std::ops::Range;

use meshwright_backend::{AttentionShape, KeyRanges};

/// The visible keys of all queries of a call: those in the band and in the key range of a query.
pub(super) struct Mask {
    /// First visible key of each query, of all samples or, without key ranges, of any sample.
    first: Vec<u32>,
    end: Vec<u32>,
    queries: usize,
    per_sample: bool,
}

/// The visible keys of the queries of one sample: of query `i`, `first[i]..end[i]`, none if this is empty.
///
/// Neither `first` nor `end` decreases.
#[derive(Clone, Copy)]
pub(super) struct VisibleKeys<'a> {
    pub first: &'a [u32],
    pub end: &'a [u32],
}

impl Mask {
    /// Evaluates the band and the key ranges of every query.
    ///
    /// # Panics
    /// When key ranges decrease, or end beyond the keys: tiles that queries see would be skipped.
    pub fn new(s: &AttentionShape, ranges: Option<KeyRanges>) -> Mask {
        let (queries, keys) = (s.queries.len, s.keys.len);
        assert!(u32::try_from(keys).is_ok(), "keys are counted in 32 bits: {s:?}");
        let band = (0..queries).map(|query| s.band.visible(query, keys));
        let (mut first, mut end): (Vec<u32>, Vec<u32>) =
            band.map(|visible| (visible.start as u32, visible.end as u32)).unzip();
        let Some(ranges) = ranges else {
            return Mask { first, end, queries, per_sample: false };
        };
        let least = s.queries.span(s.batch);
        let (firsts, ends): (&[u32], &[u32]) = (ranges.first.typed(), ranges.end.typed());
        assert!(firsts.len().min(ends.len()) >= least, "a key range for each query: {s:?}");
        (first, end) = (first.repeat(s.batch), end.repeat(s.batch));
        for sample in 0..s.batch {
            let at = sample * s.queries.pitch..sample * s.queries.pitch + queries;
            let own = sample * queries..(sample + 1) * queries;
            let (firsts, ends) = (&firsts[at.clone()], &ends[at]);
            assert!(
                firsts.is_sorted() && ends.is_sorted(),
                "key ranges never decrease: sample {sample} of {s:?}"
            );
            let last = ends.last().map_or(0, |end| *end as usize);
            assert!(last <= keys, "key ranges end at the last key: sample {sample} of {s:?}");
            first[own.clone()].iter_mut().zip(firsts).for_each(|(a, b)| *a = (*a).max(*b));
            end[own].iter_mut().zip(ends).for_each(|(a, b)| *a = (*a).min(*b));
        }
        Mask { first, end, queries, per_sample: true }
    }

    /// Returns the visible keys of one sample.
    pub fn of_sample(&self, sample: usize) -> VisibleKeys<'_> {
        let start = if self.per_sample { sample * self.queries } else { 0 };
        let own = start..start + self.queries;
        VisibleKeys { first: &self.first[own.clone()], end: &self.end[own] }
    }
}

impl<'a> VisibleKeys<'a> {
    /// Returns the same of some queries.
    pub fn of_queries(&self, queries: Range<usize>) -> VisibleKeys<'a> {
        VisibleKeys { first: &self.first[queries.clone()], end: &self.end[queries] }
    }

    /// Returns a range that contains all keys that any query sees.
    pub fn keys(&self) -> Range<usize> {
        let first = self.first.first().map_or(0, |first| *first as usize);
        let end = self.end.last().map_or(0, |end| *end as usize);
        first.min(end)..end
    }

    /// Returns a range that contains all queries that see any of the keys.
    pub fn queries(&self, keys: Range<usize>) -> Range<usize> {
        let first = self.end.partition_point(|end| *end as usize <= keys.start);
        let end = self.first.partition_point(|first| (*first as usize) < keys.end);
        first.min(end)..end
    }

    /// Returns the positions, in a row of `len` keys from `start` on, that a query sees; `0..0` if it sees none.
    #[inline(always)]
    pub fn inside(&self, query: usize, start: usize, len: usize) -> (usize, usize) {
        let first = (self.first[query] as usize).saturating_sub(start);
        let end = (self.end[query] as usize).saturating_sub(start).min(len);
        if first < end { (first, end) } else { (0, 0) }
    }
    /// Returns true if a query sees keys, all of them among the `len` keys from `start` on.
    #[inline(always)]
    pub fn are_inside(&self, query: usize, start: usize, len: usize) -> bool {
        let (first, end) = (self.first[query] as usize, self.end[query] as usize);
        start <= first && first < end && end <= start + len
    }
}
