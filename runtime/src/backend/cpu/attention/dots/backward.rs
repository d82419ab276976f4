use std::ops::Range;

use super::{padded, panels_of_columns, panels_of_rows};
use crate::backend::cpu::attention::Parts;
use crate::backend::cpu::attention::backward::{KEYS, QUERIES, Tiles};
use crate::backend::cpu::attention::dense::DenseAttention;
use crate::backend::cpu::attention::heads::Head;
use crate::backend::cpu::dots::{
    PANEL, PairRows, Panels, Source, Target, multiply, pair_columns, pair_rows, transpose,
};
use crate::backend::cpu::float::{Float, cast};

/// Tiles of the backward pass.
///
/// A contraction over queries has the gradient or the query, transposed, on its left, and weights or gradients of
/// scores on its right: so the sums for keys and values are transposed, block of keys by block.
pub struct Backward<'a> {
    sizes: Sizes,
    /// Panels of pairs of elements, of keys and of values.
    keys_t: &'a mut [u32],
    values_t: &'a mut [u32],
    /// Panels of pairs of keys.
    keys: &'a mut [u32],
    /// Rows of pairs of elements.
    queries: &'a mut [u32],
    douts: &'a mut [u32],
    /// One row per element, of pairs of queries.
    queries_t: &'a mut [u32],
    douts_t: &'a mut [u32],
    /// Pairs of rows next to each other, before they are transposed.
    zipped: &'a mut [u32],
    /// Of one tile: panels of pairs of queries.
    weights: &'a mut [u32],
    dscores: &'a mut [u32],
    /// Of one tile: rows of pairs of keys.
    dscore_rows: &'a mut [u32],
    /// `[block, element, key]`, then `[key, element]`.
    dkeys: Sums<'a>,
    dvalues: Sums<'a>,
    dqueries: &'a mut [f32],
}

/// A sum that is transposed when it is complete.
struct Sums<'a> {
    transposed: &'a mut [f32],
    rows: &'a mut [f32],
}

#[derive(Clone, Copy)]
struct Sizes {
    seq: usize,
    dim: usize,
}

impl Sizes {
    /// Of operands with all rows or all elements in pairs, filled up on both sides.
    fn whole(self) -> usize {
        padded(self.seq) * padded(self.dim) / 2
    }

    /// Of one tile in pairs, filled up on both sides.
    fn tile(self) -> usize {
        padded(QUERIES.min(self.seq)) * padded(KEYS.min(self.seq)) / 2
    }

    /// Of transposed queries, one row per element.
    fn transposed(self) -> usize {
        padded(self.dim) * self.pair_stride()
    }

    /// From one element to the next in transposed queries.
    fn pair_stride(self) -> usize {
        padded(self.seq.div_ceil(2))
    }

    /// From one panel of pairs of rows to the next.
    fn panel(self) -> usize {
        padded(self.seq) / 2 * PANEL
    }
}

impl<'a> Backward<'a> {
    pub fn scratch_len(s: &DenseAttention) -> usize {
        let sizes = Sizes { seq: s.seq, dim: s.head_dim };
        Parts::len(&[sizes.whole(); 6])
            + Parts::len(&[sizes.transposed(); 2])
            + Parts::len(&[sizes.tile(); 3])
            + Parts::len(&[2 * sizes.whole(); 5])
    }

    pub fn new<T: Float>(
        s: &DenseAttention,
        key: Head<'a, T>,
        value: Head<'a, T>,
        scratch: &mut Parts<'a>,
    ) -> Self {
        let sizes = Sizes { seq: s.seq, dim: s.head_dim };
        let [keys_t, values_t, keys, queries, douts, zipped] =
            [(); 6].map(|()| scratch.take_pairs(sizes.whole()));
        let [queries_t, douts_t] = [(); 2].map(|()| scratch.take_pairs(sizes.transposed()));
        let [weights, dscores, dscore_rows] = [(); 3].map(|()| scratch.take_pairs(sizes.tile()));
        let mut sums = || scratch.take(2 * sizes.whole());
        let dkeys = Sums { transposed: sums(), rows: sums() };
        let dvalues = Sums { transposed: sums(), rows: sums() };
        let dqueries = sums();
        panels_of_rows(&key, queries, keys_t);
        panels_of_rows(&value, queries, values_t);
        panels_of_columns(&key, keys);
        dkeys.transposed.fill(0.0);
        dvalues.transposed.fill(0.0);
        Backward {
            sizes,
            keys_t,
            values_t,
            keys,
            queries,
            douts,
            queries_t,
            douts_t,
            zipped,
            weights,
            dscores,
            dscore_rows,
            dkeys,
            dvalues,
            dqueries,
        }
    }
}

impl Sums<'_> {
    /// Turns `[block, element, key]` into `[key, element]`, elements filled up to whole panels.
    fn transpose(&mut self, Sizes { seq, dim }: Sizes) {
        let row = padded(dim);
        for start in (0..seq).step_by(KEYS) {
            let keys = padded(KEYS.min(seq - start));
            let block = bytemuck::cast_slice(&self.transposed[start * dim..][..keys * dim]);
            let rows = bytemuck::cast_slice_mut(&mut self.rows[start * row..][..keys * row]);
            transpose(block, keys, rows, Target { row, panel: PANEL });
        }
    }

    fn row(&self, row: usize, dim: usize) -> &[f32] {
        &self.rows[row * padded(dim)..][..dim]
    }
}

/// The rows of a head as they are, and transposed.
fn both_ways<T: Float>(
    sizes: Sizes,
    head: &Head<T>,
    zipped: &mut [u32],
    rows: &mut [u32],
    transposed: &mut [u32],
) {
    let source = head.source();
    pair_columns(source, rows);
    let width = padded(sizes.dim);
    pair_rows(source, zipped, Target { row: width, panel: PANEL });
    let zipped = &zipped[..sizes.seq.div_ceil(2) * width];
    // One row per element; what fills up the width makes rows that nothing reads.
    transpose(zipped, width, transposed, Target { row: sizes.pair_stride(), panel: PANEL });
}

impl<'a, T: Float> Tiles<'a, T> for Backward<'a> {
    fn turn_to(&mut self, query: Head<'a, T>, dout: Head<'a, T>) {
        both_ways(self.sizes, &query, self.zipped, self.queries, self.queries_t);
        both_ways(self.sizes, &dout, self.zipped, self.douts, self.douts_t);
    }

    fn row(&self, keys: usize) -> usize {
        padded(keys)
    }

    fn products(
        &mut self,
        queries: Range<usize>,
        keys: Range<usize>,
        scores: &mut [f32],
        dweights: &mut [f32],
    ) {
        let pairs = self.sizes.dim / 2;
        let sizes = [queries.len(), padded(keys.len()), pairs];
        let product = |rows: &[u32], panels: &[u32], out: &mut [f32]| {
            let rows = PairRows { pairs: &rows[queries.start * pairs..], stride: pairs };
            let panels = Panels { pairs: &panels[keys.start * pairs..], stride: PANEL * pairs };
            // SAFETY: tiles of this kind are chosen where the CPU has these instructions.
            unsafe { multiply(sizes, rows, panels, false, out) };
        };
        product(self.queries, self.keys_t, scores);
        product(self.douts, self.values_t, dweights);
    }

    fn add(&mut self, queries: Range<usize>, keys: Range<usize>, weights: &[f32], dscores: &[f32]) {
        let dim = self.sizes.dim;
        let (count, width) = (queries.len(), padded(keys.len()));
        let tile = |data| Source { data, stride: width, count, width };
        let stride = count.div_ceil(2) * PANEL;
        let to = Target { row: PANEL, panel: stride };
        pair_rows(tile(weights), self.weights, to);
        pair_rows(tile(dscores), self.dscores, to);
        pair_columns(tile(dscores), self.dscore_rows);

        let sizes = [dim, width, count.div_ceil(2)];
        let at = keys.start * dim..keys.start * dim + dim * width;
        let product = |rows: &[u32], panels: &[u32], sums: &mut [f32]| {
            let rows =
                PairRows { pairs: &rows[queries.start / 2..], stride: self.sizes.pair_stride() };
            // SAFETY: as above.
            unsafe { multiply(sizes, rows, Panels { pairs: panels, stride }, true, sums) };
        };
        product(self.douts_t, self.weights, &mut self.dvalues.transposed[at.clone()]);
        product(self.queries_t, self.dscores, &mut self.dkeys.transposed[at]);

        let sizes = [count, padded(dim), width / 2];
        let rows = PairRows { pairs: self.dscore_rows, stride: width / 2 };
        let stride = self.sizes.panel();
        let keys_in = Panels { pairs: &self.keys[keys.start / 2 * PANEL..], stride };
        let dqueries = &mut self.dqueries[queries.start * padded(dim)..];
        // SAFETY: as above.
        unsafe { multiply(sizes, rows, keys_in, keys.start > 0, dqueries) };
    }

    fn write_dquery(&self, row: usize, out: &mut [T]) {
        cast(&self.dqueries[row * padded(self.sizes.dim)..][..self.sizes.dim], out);
    }

    fn finish(&mut self) {
        self.dkeys.transpose(self.sizes);
        self.dvalues.transpose(self.sizes);
    }

    fn write_dkey(&self, row: usize, out: &mut [T]) {
        cast(self.dkeys.row(row, self.sizes.dim), out);
    }

    fn write_dvalue(&self, row: usize, out: &mut [T]) {
        cast(self.dvalues.row(row, self.sizes.dim), out);
    }
}
