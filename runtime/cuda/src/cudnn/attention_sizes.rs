//! Sizes of attention in the terms of the library, and the memory layouts that follow from them.

use std::fmt;

use crate::FusedShape;
use meshwright_backend::Band;

use super::graph::TensorDims;

/// The part of a [`FusedShape`] that a plan depends on: everything except the scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CudnnAttentionSizes {
    /// Batch size.
    pub batch: i64,
    /// Positions of queries.
    pub queries: i64,
    /// Positions of keys.
    pub keys: i64,
    /// Positions from the first key of a sample to that of the next one.
    pub key_pitch: i64,
    /// Number of query heads.
    pub heads: i64,
    /// Number of key/value heads.
    pub kv_heads: i64,
    /// Elements per head of queries and keys.
    pub head_dim: i64,
    /// Elements per head of values.
    pub value_dim: i64,
    /// The keys that a query sees, if not all.
    pub mask: BandMask,
}

/// The keys that a query sees, in the library's terms: its masks count from the key with the index of the query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BandMask {
    /// Query `i` sees keys `j < i + 1 + right` only; `None`: no limit.
    pub right: Option<i64>,
    /// Query `i` sees keys `j > i - left` only; `None`: no limit.
    pub left: Option<i64>,
}

impl BandMask {
    /// Every query sees every key.
    pub const ALL: BandMask = BandMask { right: None, left: None };
    /// Query `i` sees the keys `0..=i`.
    pub const CAUSAL: BandMask = BandMask { right: Some(0), left: None };

    /// Returns the mask of a band, without limits that mask no key.
    fn new(band: Band, queries: usize, keys: usize) -> BandMask {
        let Band { offset, before, after } = band;
        let (queries, keys) = (queries as i64, keys as i64);
        // Distances beyond all positions are as good as the largest ones.
        let distance = |positions: usize| i64::try_from(positions).unwrap_or(i64::MAX / 4);
        let right = after.map(|after| distance(after).saturating_add(offset as i64));
        let left = before.map(|before| (distance(before) + 1).saturating_sub(offset as i64));
        BandMask {
            right: right.filter(|right| *right < keys - 1),
            left: left.filter(|left| *left < queries),
        }
    }
}

impl From<&FusedShape> for CudnnAttentionSizes {
    fn from(s: &FusedShape) -> CudnnAttentionSizes {
        CudnnAttentionSizes {
            batch: s.batch as i64,
            queries: s.queries as i64,
            keys: s.keys.len as i64,
            key_pitch: s.keys.pitch as i64,
            heads: s.heads as i64,
            kv_heads: s.kv_heads as i64,
            head_dim: s.head_dim as i64,
            value_dim: s.value_dim as i64,
            mask: BandMask::new(s.band, s.queries, s.keys.len),
        }
    }
}

/// Positions of a tensor `[batch, positions, heads, dim]`.
#[derive(Debug, Clone, Copy)]
pub struct Positions {
    len: i64,
    /// Positions from one sample to the next.
    pitch: i64,
    heads: i64,
}

/// Each layout is sizes and strides in the library's order: batch, head, row, column.
impl Positions {
    /// Returns the layout with positions as rows, of heads of `dim` elements.
    pub fn rows(&self, batch: i64, dim: i64) -> (TensorDims, TensorDims) {
        let Positions { len, pitch, heads } = *self;
        ([batch, heads, len, dim], [heads * pitch * dim, dim, heads * dim, 1])
    }

    /// Returns the layout of the same memory as [`rows`](Self::rows) with positions as columns.
    pub fn columns(&self, batch: i64, dim: i64) -> (TensorDims, TensorDims) {
        let ([_, heads, len, _], [sample, head, position, element]) = self.rows(batch, dim);
        ([batch, heads, dim, len], [sample, head, element, position])
    }
}

/// Each layout is sizes and strides in the library's order: batch, head, row, column.
impl CudnnAttentionSizes {
    /// Returns the layout of queries, of the output, or of a gradient of these, in `dim` elements per head.
    pub fn of_queries(&self, dim: i64) -> (TensorDims, TensorDims) {
        let (len, heads) = (self.queries, self.heads);
        Positions { len, pitch: len, heads }.rows(self.batch, dim)
    }

    fn key_positions(&self) -> Positions {
        Positions { len: self.keys, pitch: self.key_pitch, heads: self.kv_heads }
    }

    /// Returns the layout of keys, values, or a gradient of these, in `dim` elements per head.
    pub fn of_keys(&self, dim: i64) -> (TensorDims, TensorDims) {
        self.key_positions().rows(self.batch, dim)
    }

    /// Returns the layout of the same memory as [`of_keys`](Self::of_keys) with positions as columns.
    pub fn of_keys_transposed(&self, dim: i64) -> (TensorDims, TensorDims) {
        self.key_positions().columns(self.batch, dim)
    }

    /// Returns the layout of a tensor `[batch, heads, positions, dim]`, as intermediates and scratch tensors have.
    pub fn by_head(&self, positions: i64, dim: i64) -> (TensorDims, TensorDims) {
        let heads = self.heads;
        let strides = [heads * positions * dim, positions * dim, dim, 1];
        ([self.batch, heads, positions, dim], strides)
    }

    /// Returns the layout of one number per row of the scores.
    pub fn per_row(&self) -> (TensorDims, TensorDims) {
        let (heads, queries) = (self.heads, self.queries);
        ([self.batch, heads, queries, 1], [heads * queries, queries, 1, 1])
    }

    /// Returns the layout of the scores.
    pub fn scores(&self) -> (TensorDims, TensorDims) {
        self.by_head(self.queries, self.keys)
    }

    /// Returns the layout of the transposed scores.
    pub fn scores_transposed(&self) -> (TensorDims, TensorDims) {
        let ([batch, heads, rows, cols], [sample, head, row, col]) = self.scores();
        ([batch, heads, cols, rows], [sample, head, col, row])
    }

    /// Returns true if several query heads share a key/value head.
    pub fn is_grouped(&self) -> bool {
        self.heads != self.kv_heads
    }
}

impl fmt::Display for CudnnAttentionSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CudnnAttentionSizes { batch, queries, keys, heads, kv_heads, head_dim, .. } = self;
        write!(f, "batch {batch}, seq {queries}")?;
        if keys != queries {
            write!(f, " x {keys}")?;
        }
        write!(f, ", heads {heads}/{kv_heads}, head_dim {head_dim}")?;
        if self.value_dim != self.head_dim {
            write!(f, "/{}", self.value_dim)?;
        }
        match self.mask {
            BandMask::ALL => f.write_str(", not causal"),
            BandMask::CAUSAL => f.write_str(", causal"),
            BandMask { right: Some(0), left: Some(left) } => write!(f, ", causal, window {left}"),
            BandMask { right, left } => {
                let limit = |limit: Option<i64>| limit.map_or("all".into(), |n| n.to_string());
                write!(f, ", window {} to {}", limit(left), limit(right))
            }
        }
    }
}
