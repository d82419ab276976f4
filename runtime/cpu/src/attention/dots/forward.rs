use std::ops::Range;

use super::{padded_len, panels_of_columns, panels_of_rows};
use crate::attention::ScratchParts;
use crate::attention::forward_tiles::{ForwardTiles, KEYS, QUERIES};
use crate::attention::heads::Head;
use crate::attention::sizes::TaskSizes;
use crate::dots::StridedRows;
use crate::dots::{PANEL, PairRows, Panels, multiply, pair_columns};
use crate::float::Float;

/// Tiles of the forward pass.
pub struct DotsForward<'a> {
    sizes: TaskSizes,
    /// Panels of pairs of elements.
    keys: &'a mut [u32],
    /// Panels of pairs of rows.
    values: &'a mut [u32],
    queries: &'a mut [u32],
    weights: &'a mut [u32],
}

impl<'a> DotsForward<'a> {
    pub fn scratch_len(sizes: TaskSizes) -> usize {
        ScratchParts::len(&Self::scratch_lens(sizes))
    }

    /// Returns the lengths of keys, values, queries and weights.
    fn scratch_lens(sizes: TaskSizes) -> [usize; 4] {
        let TaskSizes { queries, keys, head_dim, value_dim } = sizes;
        let tile = QUERIES.min(queries) * padded_len(KEYS.min(keys)) / 2;
        // Keys lie in the place of queries before they are transposed.
        let rows = queries.max(keys);
        let (keys, values) =
            (padded_len(keys) * head_dim / 2, padded_len(keys) * padded_len(value_dim) / 2);
        [keys, values, rows * head_dim / 2, tile]
    }

    pub fn new<T: Float>(
        sizes: TaskSizes,
        key: Head<'a, T>,
        value: Head<'a, T>,
        scratch: &mut ScratchParts<'a>,
    ) -> Self {
        let [keys, values, queries, weights] =
            Self::scratch_lens(sizes).map(|len| scratch.take_pairs(len));
        panels_of_rows(&key, queries, keys);
        panels_of_columns(&value, values);
        DotsForward { sizes, keys, values, queries, weights }
    }
}

impl<'a, T: Float> ForwardTiles<'a, T> for DotsForward<'a> {
    fn turn_to_head(&mut self, query: Head<'a, T>) {
        pair_columns(query.source(), self.queries);
    }

    fn row_len(&self, len: usize) -> usize {
        padded_len(len)
    }

    fn compute_scores(&self, queries: Range<usize>, keys: Range<usize>, scores: &mut [f32]) {
        let pairs = self.sizes.head_dim / 2;
        let sizes = [queries.len(), padded_len(keys.len()), pairs];
        let queries = PairRows { pairs: &self.queries[queries.start * pairs..], stride: pairs };
        let keys = Panels { pairs: &self.keys[keys.start * pairs..], stride: PANEL * pairs };
        // SAFETY: tiles of this kind are chosen where the CPU has these instructions.
        unsafe { multiply(sizes, queries, keys, false, scores) };
    }

    fn add_values(
        &mut self,
        weights: &[f32],
        keys: Range<usize>,
        accumulate: bool,
        sum: &mut [f32],
    ) {
        let width = padded_len(keys.len());
        let count = weights.len() / width;
        pair_columns(StridedRows { data: weights, stride: width, count, width }, self.weights);
        let sizes = [count, padded_len(self.sizes.value_dim), width / 2];
        let weights = PairRows { pairs: self.weights, stride: width / 2 };
        let stride = padded_len(self.sizes.keys) / 2 * PANEL;
        let values = Panels { pairs: &self.values[keys.start / 2 * PANEL..], stride };
        // SAFETY: as above.
        unsafe { multiply(sizes, weights, values, accumulate, sum) };
    }
}
