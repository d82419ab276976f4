//! Tiles of the forward pass: their sizes, and their matmuls.

use std::ops::Range;

use super::heads::Head;

/// Queries per tile. Half of the tile on the diagonal is wasted work.
pub(super) const QUERIES: usize = 32;

/// Keys per chunk, a multiple of `QUERIES`: the scores of a tile stay in the second-level cache.
pub(super) const KEYS: usize = 512;

/// The products of tiles of queries with chunks of keys and values of one task.
pub(super) trait ForwardTiles<'a, T> {
    /// Loads another query head.
    fn turn_to_head(&mut self, query: Head<'a, T>);

    /// Returns the length of a row of scores of this many keys, or of a row of sums of this many elements.
    fn row_len(&self, len: usize) -> usize;

    /// `scores = queries * keys^T`. All keys are of one [chunk](key_chunks).
    fn compute_scores(&self, queries: Range<usize>, keys: Range<usize>, scores: &mut [f32]);

    /// `sum += weights * values`, or without `sum +=` unless `accumulate`.
    fn add_values(
        &mut self,
        weights: &[f32],
        keys: Range<usize>,
        accumulate: bool,
        sum: &mut [f32],
    );
}

/// Keys in chunks, which end at multiples of [`KEYS`].
pub(super) fn key_chunks(keys: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let starts = std::iter::successors(Some(keys.start), |start| Some((start / KEYS + 1) * KEYS));
    starts
        .take_while(move |start| *start < keys.end)
        .map(move |start| start..keys.end.min((start / KEYS + 1) * KEYS))
}
