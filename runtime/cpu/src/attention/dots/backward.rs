use std::ops::Range;

use super::{padded_len, panels_of_columns, panels_of_rows};
use crate::attention::ScratchParts;
use crate::attention::backward_tiles::{BackwardTiles, KEYS, QUERIES};
use crate::attention::heads::Head;
use crate::attention::sizes::TaskSizes;
use crate::dots::{
    PANEL, PairRows, PanelLayout, Panels, StridedRows, multiply, pair_columns, pair_rows, transpose,
};
use crate::float::Float;

/// Tiles of the backward pass.
///
/// A contraction over queries has the gradient or the query, transposed, on its left, and weights or gradients of
/// scores on its right: so the sums for keys and values are transposed, block of keys by block.
pub struct DotsBackward<'a> {
    sizes: TaskSizes,
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
    /// Weights of one tile: panels of pairs of queries.
    weights: &'a mut [u32],
    dscores: &'a mut [u32],
    /// Score gradients of one tile: rows of pairs of keys.
    dscore_rows: &'a mut [u32],
    /// `[block, element, key]`, then `[key, element]`.
    dkeys: TransposedSum<'a>,
    dvalues: TransposedSum<'a>,
}

/// A sum that is transposed when it is complete.
struct TransposedSum<'a> {
    transposed: &'a mut [f32],
    rows: &'a mut [f32],
}

/// Lengths of operands in pairs.
#[derive(Clone, Copy)]
struct PairedRowLens {
    count: usize,
    dim: usize,
}

impl PairedRowLens {
    /// Returns the length with all rows or all elements in pairs, filled up on both sides.
    fn whole(self) -> usize {
        padded_len(self.count) * padded_len(self.dim) / 2
    }

    /// Transposed, one row per element.
    fn transposed(self) -> usize {
        padded_len(self.dim) * self.pair_stride()
    }

    /// Returns the distance from one element to the next in transposed rows.
    fn pair_stride(self) -> usize {
        padded_len(self.count.div_ceil(2))
    }
}

/// Lengths of the operands of a task, by content.
struct Lens {
    keys: PairedRowLens,
    values: PairedRowLens,
    queries: PairedRowLens,
    douts: PairedRowLens,
    /// Length of one tile in pairs, filled up on both sides.
    tile: usize,
    /// Length of rows before they are transposed.
    zipped: usize,
}

impl Lens {
    fn of_sizes(sizes: TaskSizes) -> Lens {
        let TaskSizes { queries, keys, head_dim, value_dim } = sizes;
        let rows = |count: usize, dim: usize| PairedRowLens { count, dim };
        let (dim, count) = (head_dim.max(value_dim), queries.max(keys));
        Lens {
            keys: rows(keys, head_dim),
            values: rows(keys, value_dim),
            queries: rows(queries, head_dim),
            douts: rows(queries, value_dim),
            tile: padded_len(QUERIES.min(queries)) * padded_len(KEYS.min(keys)) / 2,
            zipped: rows(count, dim).whole(),
        }
    }
}

impl<'a> DotsBackward<'a> {
    pub fn scratch_len(sizes: TaskSizes) -> usize {
        let Lens { keys, values, queries, douts, tile, zipped } = Lens::of_sizes(sizes);
        let keys =
            ScratchParts::len(&[keys.whole(); 2]) + ScratchParts::len(&[2 * keys.whole(); 2]);
        let values =
            ScratchParts::len(&[values.whole()]) + ScratchParts::len(&[2 * values.whole(); 2]);
        let queries = ScratchParts::len(&[queries.whole(), queries.transposed()]);
        let douts = ScratchParts::len(&[douts.whole(), douts.transposed()]);
        keys + values + queries + douts + ScratchParts::len(&[tile, tile, tile, zipped])
    }

    /// Returns the number of elements of the gradient of one query, padded to whole panels.
    pub fn dquery_len(sizes: TaskSizes) -> usize {
        padded_len(sizes.head_dim)
    }

    pub fn new<T: Float>(
        sizes: TaskSizes,
        key: Head<'a, T>,
        value: Head<'a, T>,
        scratch: &mut ScratchParts<'a>,
    ) -> Self {
        let lens = Lens::of_sizes(sizes);
        let mut pairs = |len: usize| scratch.take_pairs(len);
        let (keys_t, keys) = (pairs(lens.keys.whole()), pairs(lens.keys.whole()));
        let values_t = pairs(lens.values.whole());
        let (queries, queries_t) = (pairs(lens.queries.whole()), pairs(lens.queries.transposed()));
        let (douts, douts_t) = (pairs(lens.douts.whole()), pairs(lens.douts.transposed()));
        let [weights, dscores, dscore_rows] = [(); 3].map(|()| pairs(lens.tile));
        let zipped = pairs(lens.zipped);
        let mut sums = |rows: PairedRowLens| scratch.take_part(2 * rows.whole());
        let dkeys = TransposedSum { transposed: sums(lens.keys), rows: sums(lens.keys) };
        let dvalues = TransposedSum { transposed: sums(lens.values), rows: sums(lens.values) };
        panels_of_rows(&key, zipped, keys_t);
        panels_of_rows(&value, zipped, values_t);
        panels_of_columns(&key, keys);
        dkeys.transposed.fill(0.0);
        dvalues.transposed.fill(0.0);
        DotsBackward {
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
        }
    }
}

impl TransposedSum<'_> {
    /// Transposes `[block, element, key]` to `[key, element]`, with elements padded to whole panels.
    fn transpose(&mut self, PairedRowLens { count, dim }: PairedRowLens) {
        let row = padded_len(dim);
        for start in (0..count).step_by(KEYS) {
            let keys = padded_len(KEYS.min(count - start));
            let block = bytemuck::cast_slice(&self.transposed[start * dim..][..keys * dim]);
            let rows = bytemuck::cast_slice_mut(&mut self.rows[start * row..][..keys * row]);
            transpose(block, keys, rows, PanelLayout { row, panel: PANEL });
        }
    }

    fn row(&self, row: usize, dim: usize) -> &[f32] {
        &self.rows[row * padded_len(dim)..][..dim]
    }
}

/// Packs the rows of a head twice, as they are and transposed.
fn both_ways<T: Float>(
    sizes: PairedRowLens,
    head: &Head<T>,
    zipped: &mut [u32],
    rows: &mut [u32],
    transposed: &mut [u32],
) {
    let source = head.source();
    pair_columns(source, rows);
    let width = padded_len(sizes.dim);
    pair_rows(source, zipped, PanelLayout { row: width, panel: PANEL });
    let zipped = &zipped[..source.count.div_ceil(2) * width];
    // One row per element; the padding of the width makes rows that nothing reads.
    transpose(zipped, width, transposed, PanelLayout { row: sizes.pair_stride(), panel: PANEL });
}

impl<'a, T: Float> BackwardTiles<'a, T> for DotsBackward<'a> {
    fn turn_to_head(&mut self, query: Head<'a, T>, dout: Head<'a, T>) {
        let Lens { queries, douts, .. } = Lens::of_sizes(self.sizes);
        both_ways(queries, &query, self.zipped, self.queries, self.queries_t);
        both_ways(douts, &dout, self.zipped, self.douts, self.douts_t);
    }

    fn row_len(&self, keys: usize) -> usize {
        padded_len(keys)
    }

    fn products(
        &mut self,
        queries: Range<usize>,
        keys: Range<usize>,
        scores: &mut [f32],
        dweights: &mut [f32],
    ) {
        let product = |rows: &[u32], panels: &[u32], pairs: usize, out: &mut [f32]| {
            let sizes = [queries.len(), padded_len(keys.len()), pairs];
            let rows = PairRows { pairs: &rows[queries.start * pairs..], stride: pairs };
            let panels = Panels { pairs: &panels[keys.start * pairs..], stride: PANEL * pairs };
            // SAFETY: tiles of this kind are chosen where the CPU has these instructions.
            unsafe { multiply(sizes, rows, panels, false, out) };
        };
        product(self.queries, self.keys_t, self.sizes.head_dim / 2, scores);
        product(self.douts, self.values_t, self.sizes.value_dim / 2, dweights);
    }

    fn add_to_keys(
        &mut self,
        queries: Range<usize>,
        keys: Range<usize>,
        weights: &[f32],
        dscores: &[f32],
    ) {
        let TaskSizes { head_dim, value_dim, .. } = self.sizes;
        let (count, width) = (queries.len(), padded_len(keys.len()));
        let tile = |data| StridedRows { data, stride: width, count, width };
        let stride = count.div_ceil(2) * PANEL;
        let to = PanelLayout { row: PANEL, panel: stride };
        pair_rows(tile(weights), self.weights, to);
        pair_rows(tile(dscores), self.dscores, to);

        let row_stride = Lens::of_sizes(self.sizes).queries.pair_stride();
        let product = |rows: &[u32], panels: &[u32], dim: usize, sums: &mut [f32]| {
            let sizes = [dim, width, count.div_ceil(2)];
            let rows = PairRows { pairs: &rows[queries.start / 2..], stride: row_stride };
            let sums = &mut sums[keys.start * dim..][..dim * width];
            // SAFETY: as above.
            unsafe { multiply(sizes, rows, Panels { pairs: panels, stride }, true, sums) };
        };
        product(self.douts_t, self.weights, value_dim, self.dvalues.transposed);
        product(self.queries_t, self.dscores, head_dim, self.dkeys.transposed);
    }

    fn add_to_queries(
        &mut self,
        keys: Range<usize>,
        dscores: &[f32],
        accumulate: bool,
        dqueries: &mut [f32],
    ) {
        let (dim, width) = (padded_len(self.sizes.head_dim), padded_len(keys.len()));
        let count = dqueries.len() / dim;
        pair_columns(StridedRows { data: dscores, stride: width, count, width }, self.dscore_rows);
        let rows = PairRows { pairs: self.dscore_rows, stride: width / 2 };
        let stride = padded_len(self.sizes.keys) / 2 * PANEL;
        let keys_in = Panels { pairs: &self.keys[keys.start / 2 * PANEL..], stride };
        // SAFETY: as above.
        unsafe { multiply([count, dim, width / 2], rows, keys_in, accumulate, dqueries) };
    }

    fn finish_keys(&mut self) {
        let Lens { keys, values, .. } = Lens::of_sizes(self.sizes);
        self.dkeys.transpose(keys);
        self.dvalues.transpose(values);
    }

    fn key_gradient(&self, row: usize) -> &[f32] {
        self.dkeys.row(row, self.sizes.head_dim)
    }

    fn value_gradient(&self, row: usize) -> &[f32] {
        self.dvalues.row(row, self.sizes.value_dim)
    }
}
