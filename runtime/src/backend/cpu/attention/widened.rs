//! Tiles that are multiplied in f32, from operands that are f32 or widened.

use std::ops::Range;

use super::heads::{Head, WideRows};
use super::sizes::TaskSizes;
use super::{Parts, backward_tiles, forward_tiles};
use crate::backend::cpu::float::Float;
use crate::backend::cpu::gemm::{Matrix, multiply};

/// Tiles of the forward pass.
pub struct WidenedForward<'a> {
    sizes: TaskSizes,
    /// Transposed keys, chunk by chunk.
    keys: &'a mut [f32],
    values: WideRows<'a>,
    queries: WideRows<'a>,
}

impl<'a> WidenedForward<'a> {
    pub fn scratch_len<T: Float>(sizes: TaskSizes) -> usize {
        let TaskSizes { queries, keys, head_dim, value_dim } = sizes;
        let [values, queries] = [keys * value_dim, queries * head_dim].map(WideRows::scratch::<T>);
        Parts::len(&[keys * head_dim, values, queries])
    }

    pub fn new<T: Float>(
        sizes: TaskSizes,
        key: Head<'a, T>,
        value: Head<'a, T>,
        scratch: &mut Parts<'a>,
    ) -> Self {
        let TaskSizes { head_dim, value_dim, .. } = sizes;
        let keys = scratch.take_part(sizes.keys * head_dim);
        for chunk in forward_tiles::chunks(0..sizes.keys) {
            let at = chunk.start * head_dim..chunk.end * head_dim;
            key.transpose(chunk, &mut keys[at]);
        }
        let mut rows = |count: usize, dim: usize| {
            WideRows::new(scratch.take_part(WideRows::scratch::<T>(count * dim)), dim)
        };
        let mut values = rows(sizes.keys, value_dim);
        let queries = rows(sizes.queries, head_dim);
        values.turn_to_head(value);
        WidenedForward { sizes, keys, values, queries }
    }
}

impl<'a, T: Float> forward_tiles::Tiles<'a, T> for WidenedForward<'a> {
    fn turn_to_head(&mut self, query: Head<'a, T>) {
        self.queries.turn_to_head(query);
    }

    fn row_len(&self, len: usize) -> usize {
        len
    }

    fn scores(&self, queries: Range<usize>, keys: Range<usize>, scores: &mut [f32]) {
        let dim = self.sizes.head_dim;
        // Transposed in its chunk, of which this may be a part only.
        let chunk = keys.start / forward_tiles::KEYS * forward_tiles::KEYS;
        let whole = forward_tiles::KEYS.min(self.sizes.keys - chunk);
        let keys_t = &self.keys[chunk * dim..][..whole * dim];
        let keys_t = Matrix::rows(&keys_t[keys.start - chunk..], whole);
        let sizes = [queries.len(), keys.len(), dim];
        multiply(sizes, self.queries.from(queries.start), keys_t, false, scores);
    }

    fn add_values(
        &mut self,
        weights: &[f32],
        keys: Range<usize>,
        accumulate: bool,
        sum: &mut [f32],
    ) {
        let sizes = [weights.len() / keys.len(), self.sizes.value_dim, keys.len()];
        let weights = Matrix::rows(weights, keys.len());
        multiply(sizes, weights, self.values.from(keys.start), accumulate, sum);
    }
}

/// Tiles of the backward pass.
pub struct WidenedBackward<'a> {
    sizes: TaskSizes,
    /// Keys next to each other.
    keys: &'a mut [f32],
    /// Transposed keys, block by block.
    keys_t: &'a mut [f32],
    /// Transposed values, block by block.
    values_t: &'a mut [f32],
    dkeys: &'a mut [f32],
    dvalues: &'a mut [f32],
    queries: WideRows<'a>,
    douts: WideRows<'a>,
}

impl<'a> WidenedBackward<'a> {
    pub fn scratch_len<T: Float>(sizes: TaskSizes) -> usize {
        let TaskSizes { queries, keys, head_dim, value_dim } = sizes;
        let (key, value) = (keys * head_dim, keys * value_dim);
        let [wide_queries, wide_douts] =
            [queries * head_dim, queries * value_dim].map(WideRows::scratch::<T>);
        Parts::len(&[key, key, value, key, value, wide_queries, wide_douts])
    }

    pub fn new<T: Float>(
        sizes: TaskSizes,
        key: Head<'a, T>,
        value: Head<'a, T>,
        scratch: &mut Parts<'a>,
    ) -> Self {
        let TaskSizes { queries, keys: count, head_dim, value_dim } = sizes;
        let [keys, keys_t, dkeys] = [(); 3].map(|()| scratch.take_part(count * head_dim));
        let [values_t, dvalues] = [(); 2].map(|()| scratch.take_part(count * value_dim));
        key.gather_rows(0..count, keys);
        for start in (0..count).step_by(backward_tiles::KEYS) {
            let block = start..count.min(start + backward_tiles::KEYS);
            let at = |dim: usize| start * dim..block.end * dim;
            key.transpose(block.clone(), &mut keys_t[at(head_dim)]);
            value.transpose(block.clone(), &mut values_t[at(value_dim)]);
        }
        dkeys.fill(0.0);
        dvalues.fill(0.0);
        let mut rows = |dim: usize| {
            WideRows::new(scratch.take_part(WideRows::scratch::<T>(queries * dim)), dim)
        };
        let (queries, douts) = (rows(head_dim), rows(value_dim));
        WidenedBackward { sizes, keys, keys_t, values_t, dkeys, dvalues, queries, douts }
    }
}

impl<'a, T: Float> backward_tiles::Tiles<'a, T> for WidenedBackward<'a> {
    fn turn_to_head(&mut self, query: Head<'a, T>, dout: Head<'a, T>) {
        self.queries.turn_to_head(query);
        self.douts.turn_to_head(dout);
    }

    fn row_len(&self, keys: usize) -> usize {
        keys
    }

    fn products(
        &mut self,
        queries: Range<usize>,
        keys: Range<usize>,
        scores: &mut [f32],
        dweights: &mut [f32],
    ) {
        let TaskSizes { head_dim, value_dim, .. } = self.sizes;
        let at = |dim: usize| keys.start * dim..keys.end * dim;
        let sizes = [queries.len(), keys.len(), head_dim];
        let keys_t = Matrix::rows(&self.keys_t[at(head_dim)], keys.len());
        multiply(sizes, self.queries.from(queries.start), keys_t, false, scores);
        let sizes = [queries.len(), keys.len(), value_dim];
        let values_t = Matrix::rows(&self.values_t[at(value_dim)], keys.len());
        multiply(sizes, self.douts.from(queries.start), values_t, false, dweights);
    }

    fn add_to_keys(
        &mut self,
        queries: Range<usize>,
        keys: Range<usize>,
        weights: &[f32],
        dscores: &[f32],
    ) {
        let TaskSizes { head_dim, value_dim, .. } = self.sizes;
        let n = keys.len();
        let at = |dim: usize| keys.start * dim..keys.end * dim;
        let (query, dout) = (self.queries.from(queries.start), self.douts.from(queries.start));
        let weights_t = Matrix::transposed(weights, n);
        let sizes = [n, value_dim, queries.len()];
        multiply(sizes, weights_t, dout, true, &mut self.dvalues[at(value_dim)]);
        let dscores_t = Matrix::transposed(dscores, n);
        let sizes = [n, head_dim, queries.len()];
        multiply(sizes, dscores_t, query, true, &mut self.dkeys[at(head_dim)]);
    }

    fn add_to_queries(
        &mut self,
        keys: Range<usize>,
        dscores: &[f32],
        accumulate: bool,
        dqueries: &mut [f32],
    ) {
        let (dim, n) = (self.sizes.head_dim, keys.len());
        let sizes = [dqueries.len() / dim, dim, n];
        let keys_in = Matrix::rows(&self.keys[keys.start * dim..keys.end * dim], dim);
        multiply(sizes, Matrix::rows(dscores, n), keys_in, accumulate, dqueries);
    }

    fn dkey(&self, row: usize) -> &[f32] {
        &self.dkeys[row * self.sizes.head_dim..][..self.sizes.head_dim]
    }

    fn dvalue(&self, row: usize) -> &[f32] {
        &self.dvalues[row * self.sizes.value_dim..][..self.sizes.value_dim]
    }
}
