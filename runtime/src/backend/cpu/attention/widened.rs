//! Tiles that are multiplied in f32, from operands that are f32 or widened.

use std::ops::Range;

use super::heads::{Head, WideRows};
use super::{Parts, backward, forward};
use crate::backend::cpu::attention::dense::DenseAttention;
use crate::backend::cpu::float::{Float, cast};
use crate::backend::cpu::gemm::{Matrix, multiply};

/// Tiles of the forward pass.
pub struct Forward<'a> {
    s: &'a DenseAttention,
    /// Transposed keys, chunk by chunk.
    keys: &'a mut [f32],
    values: WideRows<'a>,
    queries: WideRows<'a>,
}

impl<'a> Forward<'a> {
    pub fn scratch_len<T: Float>(s: &DenseAttention) -> usize {
        let whole = s.seq * s.head_dim;
        let wide = WideRows::scratch::<T>(whole);
        Parts::len(&[whole, wide, wide])
    }

    pub fn new<T: Float>(
        s: &'a DenseAttention,
        key: Head<'a, T>,
        value: Head<'a, T>,
        scratch: &mut Parts<'a>,
    ) -> Self {
        let whole = s.seq * s.head_dim;
        let keys = scratch.take(whole);
        for chunk in forward::chunks(s.seq) {
            let at = chunk.start * s.head_dim..chunk.end * s.head_dim;
            key.transpose(chunk, &mut keys[at]);
        }
        let mut rows = || WideRows::new(scratch.take(WideRows::scratch::<T>(whole)), s.head_dim);
        let (mut values, queries) = (rows(), rows());
        values.turn_to(value);
        Forward { s, keys, values, queries }
    }
}

impl<'a, T: Float> forward::Tiles<'a, T> for Forward<'a> {
    fn turn_to(&mut self, query: Head<'a, T>) {
        self.queries.turn_to(query);
    }

    fn row(&self, len: usize) -> usize {
        len
    }

    fn scores(&self, queries: Range<usize>, keys: Range<usize>, scores: &mut [f32]) {
        let dim = self.s.head_dim;
        // Transposed in its chunk, of which this may be the beginning only.
        let whole = forward::KEYS.min(self.s.seq - keys.start);
        let keys_t = Matrix::rows(&self.keys[keys.start * dim..][..whole * dim], whole);
        let sizes = [queries.len(), keys.len(), dim];
        multiply(sizes, self.queries.from(queries.start), keys_t, false, scores);
    }

    fn add_values(&mut self, weights: &[f32], keys: Range<usize>, sum: &mut [f32]) {
        let sizes = [weights.len() / keys.len(), self.s.head_dim, keys.len()];
        let weights = Matrix::rows(weights, keys.len());
        multiply(sizes, weights, self.values.from(keys.start), keys.start > 0, sum);
    }
}

/// Tiles of the backward pass.
pub struct Backward<'a> {
    dim: usize,
    /// Keys next to each other.
    keys: &'a mut [f32],
    /// Transposed keys, block by block.
    keys_t: &'a mut [f32],
    /// Transposed values, block by block.
    values_t: &'a mut [f32],
    dkeys: &'a mut [f32],
    dvalues: &'a mut [f32],
    dqueries: &'a mut [f32],
    queries: WideRows<'a>,
    douts: WideRows<'a>,
}

impl<'a> Backward<'a> {
    pub fn scratch_len<T: Float>(s: &DenseAttention) -> usize {
        let whole = s.seq * s.head_dim;
        let wide = WideRows::scratch::<T>(whole);
        Parts::len(&[whole; 6]) + Parts::len(&[wide; 2])
    }

    pub fn new<T: Float>(
        s: &DenseAttention,
        key: Head<'a, T>,
        value: Head<'a, T>,
        scratch: &mut Parts<'a>,
    ) -> Self {
        let &DenseAttention { seq, head_dim: dim, .. } = s;
        let whole = seq * dim;
        let [keys, keys_t, values_t, dkeys, dvalues, dqueries] =
            [(); 6].map(|()| scratch.take(whole));
        key.gather(0..seq, keys);
        for start in (0..seq).step_by(backward::KEYS) {
            let block = start..seq.min(start + backward::KEYS);
            let at = start * dim..block.end * dim;
            key.transpose(block.clone(), &mut keys_t[at.clone()]);
            value.transpose(block, &mut values_t[at]);
        }
        dkeys.fill(0.0);
        dvalues.fill(0.0);
        let mut rows = || WideRows::new(scratch.take(WideRows::scratch::<T>(whole)), dim);
        let (queries, douts) = (rows(), rows());
        Backward { dim, keys, keys_t, values_t, dkeys, dvalues, dqueries, queries, douts }
    }
}

impl<'a, T: Float> backward::Tiles<'a, T> for Backward<'a> {
    fn turn_to(&mut self, query: Head<'a, T>, dout: Head<'a, T>) {
        self.queries.turn_to(query);
        self.douts.turn_to(dout);
    }

    fn row(&self, keys: usize) -> usize {
        keys
    }

    fn products(
        &mut self,
        queries: Range<usize>,
        keys: Range<usize>,
        scores: &mut [f32],
        dweights: &mut [f32],
    ) {
        let at = keys.start * self.dim..keys.end * self.dim;
        let sizes = [queries.len(), keys.len(), self.dim];
        let keys_t = Matrix::rows(&self.keys_t[at.clone()], keys.len());
        multiply(sizes, self.queries.from(queries.start), keys_t, false, scores);
        let values_t = Matrix::rows(&self.values_t[at], keys.len());
        multiply(sizes, self.douts.from(queries.start), values_t, false, dweights);
    }

    fn add(&mut self, queries: Range<usize>, keys: Range<usize>, weights: &[f32], dscores: &[f32]) {
        let (n, dim) = (keys.len(), self.dim);
        let at = keys.start * dim..keys.end * dim;
        let (query, dout) = (self.queries.from(queries.start), self.douts.from(queries.start));
        let sizes = [n, dim, queries.len()];
        let weights_t = Matrix::transposed(weights, n);
        multiply(sizes, weights_t, dout, true, &mut self.dvalues[at.clone()]);
        let dscores_t = Matrix::transposed(dscores, n);
        multiply(sizes, dscores_t, query, true, &mut self.dkeys[at.clone()]);
        let dqueries = &mut self.dqueries[queries.start * dim..queries.end * dim];
        let sizes = [queries.len(), dim, n];
        let keys_in = Matrix::rows(&self.keys[at], dim);
        multiply(sizes, Matrix::rows(dscores, n), keys_in, keys.start > 0, dqueries);
    }

    fn write_dquery(&self, row: usize, out: &mut [T]) {
        cast(&self.dqueries[row * self.dim..][..self.dim], out);
    }

    fn write_dkey(&self, row: usize, out: &mut [T]) {
        cast(&self.dkeys[row * self.dim..][..self.dim], out);
    }

    fn write_dvalue(&self, row: usize, out: &mut [T]) {
        cast(&self.dvalues[row * self.dim..][..self.dim], out);
    }
}
