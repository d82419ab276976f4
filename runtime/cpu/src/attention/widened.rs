//! Tiles that are multiplied in f32, from operands that are f32 or widened.
//!
//! Right operands are packed once for all tiles that read them, and rows of left ones are gathered.

use std::ops::Range;

use super::heads::{Head, WideRows};
use super::sizes::TaskSizes;
use super::{ScratchParts, backward_tiles, forward_tiles};
use crate::float::Float;
use crate::gemm::{Matrix, RightOperand};

/// Creates an operand of up to `[head_dim or value_dim, keys]` in scratch; its products are dot products of head
/// vectors.
fn heads_t<'a>(scratch: &mut ScratchParts<'a>, sizes: [usize; 2]) -> RightOperand<'a> {
    /// A query that sees few keys has a gradient of its scores which is a small difference of such dot products.
    const CHAIN: usize = 64;
    RightOperand::new(scratch.take_part(RightOperand::scratch_len(sizes)), CHAIN)
}

/// Creates an operand of up to `rows` rows of a head in scratch; its products are sums over positions.
fn position_rows<'a>(scratch: &mut ScratchParts<'a>, rows: usize, dim: usize) -> RightOperand<'a> {
    /// Keys per chain of f32 additions. In causal attention, the first queries have large weights, to whose sums later
    /// terms would be rounded.
    const CHAIN: usize = 128;
    RightOperand::new(scratch.take_part(RightOperand::scratch_len([rows, dim])), CHAIN)
}

/// Creates left operands of up to `rows` rows of a head in scratch.
fn wide_rows<'a>(scratch: &mut ScratchParts<'a>, rows: usize, dim: usize) -> WideRows<'a> {
    WideRows::new(scratch.take_part(rows * dim), dim)
}

/// Tiles of the forward pass.
pub struct WidenedForward<'a> {
    sizes: TaskSizes,
    /// `[head_dim, keys]`.
    keys_t: RightOperand<'a>,
    /// `[keys, value_dim]`.
    values: RightOperand<'a>,
    queries: WideRows<'a>,
}

impl<'a> WidenedForward<'a> {
    pub fn scratch_len(sizes: TaskSizes) -> usize {
        let TaskSizes { queries, keys, head_dim, value_dim } = sizes;
        ScratchParts::len(&[
            RightOperand::scratch_len([head_dim, keys]),
            RightOperand::scratch_len([keys, value_dim]),
            queries * head_dim,
        ])
    }

    pub fn new<T: Float>(
        sizes: TaskSizes,
        key: Head<'a, T>,
        value: Head<'a, T>,
        scratch: &mut ScratchParts<'a>,
    ) -> Self {
        let TaskSizes { queries, keys, head_dim, value_dim } = sizes;
        let mut keys_t = heads_t(scratch, [head_dim, keys]);
        let mut values = position_rows(scratch, keys, value_dim);
        keys_t.pack([head_dim, keys], key.transposed());
        values.pack([keys, value_dim], value.matrix());
        let queries = wide_rows(scratch, queries, head_dim);
        WidenedForward { sizes, keys_t, values, queries }
    }
}

impl<'a, T: Float> forward_tiles::ForwardTiles<'a, T> for WidenedForward<'a> {
    fn turn_to_head(&mut self, query: Head<'a, T>) {
        self.queries.turn_to_head(query);
    }

    fn row_len(&self, len: usize) -> usize {
        len
    }

    fn compute_scores(&self, queries: Range<usize>, keys: Range<usize>, scores: &mut [f32]) {
        let queries = self.queries.from(queries.start);
        self.keys_t.multiply(queries, 0..self.sizes.head_dim, keys, false, scores);
    }

    fn add_values(
        &mut self,
        weights: &[f32],
        keys: Range<usize>,
        accumulate: bool,
        sum: &mut [f32],
    ) {
        let weights = Matrix::rows(weights, keys.len());
        self.values.multiply(weights, keys, 0..self.sizes.value_dim, accumulate, sum);
    }
}

/// Tiles of the backward pass.
pub struct WidenedBackward<'a> {
    sizes: TaskSizes,
    /// `[keys, head_dim]`.
    keys: RightOperand<'a>,
    /// `[head_dim, keys]`.
    keys_t: RightOperand<'a>,
    /// `[value_dim, keys]`.
    values_t: RightOperand<'a>,
    dkeys: &'a mut [f32],
    dvalues: &'a mut [f32],
    queries: QueryRows<'a>,
    douts: QueryRows<'a>,
}

impl<'a> WidenedBackward<'a> {
    pub fn scratch_len(sizes: TaskSizes) -> usize {
        let TaskSizes { queries, keys, head_dim, value_dim } = sizes;
        ScratchParts::len(&[
            RightOperand::scratch_len([keys, head_dim]),
            RightOperand::scratch_len([head_dim, keys]),
            RightOperand::scratch_len([value_dim, keys]),
            keys * head_dim,
            keys * value_dim,
        ]) + [head_dim, value_dim]
            .map(|dim| QueryRows::scratch_len(queries, dim))
            .iter()
            .sum::<usize>()
    }

    pub fn new<T: Float>(
        sizes: TaskSizes,
        key: Head<'a, T>,
        value: Head<'a, T>,
        scratch: &mut ScratchParts<'a>,
    ) -> Self {
        let TaskSizes { queries, keys: count, head_dim, value_dim } = sizes;
        let mut keys = position_rows(scratch, count, head_dim);
        let mut keys_t = heads_t(scratch, [head_dim, count]);
        let mut values_t = heads_t(scratch, [value_dim, count]);
        keys.pack([count, head_dim], key.matrix());
        keys_t.pack([head_dim, count], key.transposed());
        values_t.pack([value_dim, count], value.transposed());
        let [dkeys, dvalues] = [head_dim, value_dim].map(|dim| scratch.take_part(count * dim));
        dkeys.fill(0.0);
        dvalues.fill(0.0);
        let [queries, douts] =
            [head_dim, value_dim].map(|dim| QueryRows::new(scratch, queries, dim));
        WidenedBackward { sizes, keys, keys_t, values_t, dkeys, dvalues, queries, douts }
    }
}

/// A row for each query of one head: a left operand of some matmuls, and a right one of others.
struct QueryRows<'a> {
    left: WideRows<'a>,
    right: RightOperand<'a>,
    dim: usize,
}

impl<'a> QueryRows<'a> {
    fn scratch_len(rows: usize, dim: usize) -> usize {
        ScratchParts::len(&[rows * dim, RightOperand::scratch_len([rows, dim])])
    }

    /// Creates operands of up to `rows` rows in scratch.
    fn new(scratch: &mut ScratchParts<'a>, rows: usize, dim: usize) -> Self {
        let left = wide_rows(scratch, rows, dim);
        QueryRows { left, right: position_rows(scratch, rows, dim), dim }
    }

    fn turn_to_head<T: Float>(&mut self, head: Head<T>) {
        self.left.turn_to_head(head);
        self.right.pack([head.count(), self.dim], head.matrix());
    }

    /// `c += weights^T * rows`, where `weights` are `[rows.len(), keys]`.
    fn add_products(&self, weights: &[f32], keys: usize, rows: Range<usize>, c: &mut [f32]) {
        self.right.multiply(Matrix::transposed(weights, keys), rows, 0..self.dim, true, c);
    }
}

impl<'a, T: Float> backward_tiles::BackwardTiles<'a, T> for WidenedBackward<'a> {
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
        let [query, dout] = [&self.queries, &self.douts].map(|rows| rows.left.from(queries.start));
        self.keys_t.multiply(query, 0..head_dim, keys.clone(), false, scores);
        self.values_t.multiply(dout, 0..value_dim, keys, false, dweights);
    }

    fn add_to_keys(
        &mut self,
        queries: Range<usize>,
        keys: Range<usize>,
        weights: &[f32],
        dscores: &[f32],
    ) {
        let TaskSizes { head_dim, value_dim, .. } = self.sizes;
        let at = |dim: usize| keys.start * dim..keys.end * dim;
        let dvalues = &mut self.dvalues[at(value_dim)];
        self.douts.add_products(weights, keys.len(), queries.clone(), dvalues);
        let dkeys = &mut self.dkeys[at(head_dim)];
        self.queries.add_products(dscores, keys.len(), queries, dkeys);
    }

    fn add_to_queries(
        &mut self,
        keys: Range<usize>,
        dscores: &[f32],
        accumulate: bool,
        dqueries: &mut [f32],
    ) {
        let dscores = Matrix::rows(dscores, keys.len());
        self.keys.multiply(dscores, keys, 0..self.sizes.head_dim, accumulate, dqueries);
    }

    fn key_gradient(&self, row: usize) -> &[f32] {
        &self.dkeys[row * self.sizes.head_dim..][..self.sizes.head_dim]
    }

    fn value_gradient(&self, row: usize) -> &[f32] {
        &self.dvalues[row * self.sizes.value_dim..][..self.sizes.value_dim]
    }
}
