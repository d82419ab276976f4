//! Tiles of one query head.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::{BackwardCall, queries_that_see};
use crate::attention::backward_tiles::{BackwardTiles, KEYS, QUERIES};
use crate::attention::dropout::multiply_each;
use crate::attention::mask::VisibleKeys;
use crate::attention::online_softmax::{multiply_visible, softmax_backward};
use crate::attention::{LINE, ScratchParts};
use crate::float::Float;

/// Scratch of one tile.
pub(super) struct TileScratch<'a> {
    weights: &'a mut [f32],
    dscores: &'a mut [f32],
    /// Derivatives of scores with respect to dot products, if these are not the scale alone.
    slopes: &'a mut [f32],
    /// Factors of weights, if there is dropout.
    factors: &'a mut [f32],
}

impl<'a> TileScratch<'a> {
    fn scratch_lens<T>(call: &BackwardCall<T>) -> [usize; 4] {
        let keys = KEYS.min(call.s.keys.len).next_multiple_of(LINE);
        let tile = keys * QUERIES.min(call.s.queries.len);
        let needed = |is_needed: bool| if is_needed { tile } else { 0 };
        [tile, tile, needed(!call.scoring.is_plain()), needed(call.dropout.is_some())]
    }

    pub fn len<T>(call: &BackwardCall<T>) -> usize {
        ScratchParts::len(&Self::scratch_lens(call))
    }

    pub fn new<T>(call: &BackwardCall<T>, parts: &mut ScratchParts<'a>) -> Self {
        let [weights, dscores, slopes, factors] =
            Self::scratch_lens(call).map(|len| parts.take_part(len));
        TileScratch { weights, dscores, slopes, factors }
    }
}

/// Backward of one query head over the keys of the tiles.
pub(super) struct HeadBackward<'a, 's, T> {
    call: &'a BackwardCall<'a, T>,
    visible: VisibleKeys<'a>,
    /// Sample and query head.
    at: [usize; 2],
    lse: &'a [f32],
    shifts: &'a [f32],
    scratch: &'a mut TileScratch<'s>,
}

impl<'a, 's, T: Float> HeadBackward<'a, 's, T> {
    pub fn new(
        call: &'a BackwardCall<'a, T>,
        at @ [sample, head]: [usize; 2],
        scratch: &'a mut TileScratch<'s>,
    ) -> Self {
        let (row, layout) = (sample * call.s.heads + head, call.s.queries);
        HeadBackward {
            call,
            visible: call.mask.of_sample(sample),
            at,
            lse: &call.lse[row * layout.pitch..][..layout.len],
            shifts: &call.shifts[row * layout.len..][..layout.len],
            scratch,
        }
    }

    /// Returns the queries that see a block of keys, in chunks.
    pub fn key_chunks(&self, keys: &Range<usize>) -> impl Iterator<Item = Range<usize>> + use<T> {
        let all = queries_that_see(self.visible, keys.clone());
        all.clone().step_by(QUERIES).map(move |first| first..all.end.min(first + QUERIES))
    }

    /// Returns true if the gradients of queries are added to the sums of earlier blocks of keys. A first block that
    /// every query sees writes them.
    pub fn accumulates(&self, keys: &Range<usize>) -> bool {
        keys.start > 0
            || queries_that_see(self.visible, keys.clone()) != (0..self.call.s.queries.len)
    }

    /// Computes a tile, and adds it to the gradients of its keys and values. `first` is the first query and the first
    /// key of `tiles`.
    pub fn compute_tile(
        &mut self,
        tiles: &mut (dyn BackwardTiles<'_, T> + '_),
        [first_query, first_key]: [usize; 2],
        queries: &Range<usize>,
        keys: &Range<usize>,
    ) {
        let BackwardCall { s, scoring, dropout, dbias, flops, .. } = self.call;
        let [sample, head] = self.at;
        let row = tiles.row_len(keys.len());
        let visible = self.visible.of_queries(queries.clone());
        let weights = &mut self.scratch.weights[..queries.len() * row];
        let dscores = &mut self.scratch.dscores[..queries.len() * row];
        let query_rows = queries.start - first_query..queries.end - first_query;
        let key_rows = keys.start - first_key..keys.end - first_key;
        tiles.products(query_rows.clone(), key_rows.clone(), weights, dscores);
        if let Some(dropout) = dropout {
            let factors = &mut self.scratch.factors[..queries.len() * row];
            factors.fill(1.0);
            dropout.multiply([sample, head], queries.clone(), keys.clone(), row, factors);
            multiply_each(dscores, factors, dropout.kept);
        }
        let of_rows = [&self.lse[queries.clone()], &self.shifts[queries.clone()]];
        let block = [keys.start, keys.len()];
        if scoring.is_plain() {
            softmax_backward(weights, dscores, row, visible, block, s.scale, of_rows);
        } else {
            let slopes = &mut self.scratch.slopes[..queries.len() * row];
            scoring.apply_with_slopes(head, queries.clone(), keys.start, row, weights, slopes);
            softmax_backward(weights, dscores, row, visible, block, 1.0, of_rows);
            if let Some((distances, parts)) = dbias {
                let len = distances.count;
                // SAFETY: with a gradient of a bias, this sample and head belong to this task alone.
                let part = unsafe { parts.piece((sample * s.heads + head) * len, len) };
                distances.add_tile(queries.clone(), visible, block, row, dscores, part);
            }
            multiply_visible(dscores, slopes, row, visible, block);
        }
        if dropout.is_some() {
            multiply_each(weights, &self.scratch.factors[..queries.len() * row], 1.0);
        }
        let pairs = (queries.len() * keys.len()) as u64;
        let per_pair = (6 * s.head_dim + 4 * s.value_dim) as u64;
        flops.fetch_add(pairs * per_pair, Ordering::Relaxed);
        tiles.add_to_keys(query_rows, key_rows, weights, dscores);
    }

    /// Adds the tile that was computed last to the gradients of its queries.
    pub fn add_to_queries(
        &mut self,
        tiles: &mut (dyn BackwardTiles<'_, T> + '_),
        first_key: usize,
        keys: &Range<usize>,
        dqueries: &mut [f32],
    ) {
        let accumulate = self.accumulates(keys);
        let key_rows = keys.start - first_key..keys.end - first_key;
        tiles.add_to_queries(key_rows, self.scratch.dscores, accumulate, dqueries);
    }
}
