//! Tiles of the backward pass: their sizes, their matmuls, and the sums of the gradients of keys and values.

use std::ops::Range;

use super::heads::Head;

/// Keys per block. Half of the tile on the diagonal is wasted work.
pub(super) const KEYS: usize = 64;

/// Queries per chunk: two tiles of scores stay in the second-level cache.
pub(super) const QUERIES: usize = 512;

/// The products of chunks of queries with blocks of keys and values, and the gradients of these keys and values.
pub(super) trait BackwardTiles<'a, T> {
    /// Loads other queries of any head, and the gradients of their outputs, at most as many as the tiles hold.
    fn turn_to_head(&mut self, query: Head<'a, T>, dout: Head<'a, T>);

    /// Returns the length of a row of scores of this many keys.
    fn row_len(&self, keys: usize) -> usize;

    /// `scores = queries * keys^T` and `dweights = douts * values^T`. The first query is an even one.
    fn products(
        &mut self,
        queries: Range<usize>,
        keys: Range<usize>,
        scores: &mut [f32],
        dweights: &mut [f32],
    );

    /// `dvalues += weights^T * douts` and `dkeys += dscores^T * queries`.
    fn add_to_keys(
        &mut self,
        queries: Range<usize>,
        keys: Range<usize>,
        weights: &[f32],
        dscores: &[f32],
    );

    /// `dqueries += dscores * keys`, or without `dqueries +=` unless `accumulate`. The gradients of a tile's queries
    /// follow each other.
    fn add_to_queries(
        &mut self,
        keys: Range<usize>,
        dscores: &[f32],
        accumulate: bool,
        dqueries: &mut [f32],
    );

    /// Completes the sums over query heads.
    fn finish_keys(&mut self) {}

    /// Returns the complete gradient of one key.
    fn key_gradient(&self, row: usize) -> &[f32];

    /// Returns the complete gradient of one value.
    fn value_gradient(&self, row: usize) -> &[f32];
}
