//! Scaled dot-product attention with grouped queries (GQA), and the log-sum-exp of each row of scores.

use std::ops::Range;

use super::weight_dropout::WeightDropout;
use crate::{DType, DryRunBackend, View, ViewMut};

/// Attention kernels.
///
/// The score of query `i` and key `j` of a head is `s = scale * dot(q_i, k_j)`, then `cap * tanh(s / cap)` if there is
/// a [soft cap](AttentionShape::soft_cap), plus the [distance bias](DistanceBias) of the head if there is one. A query
/// attends to the keys that its [band](Band) and its [key range](KeyRanges) both show. No matrix of queries by keys is
/// stored (Dao et al. 2022).
pub trait AttentionOps {
    /// Computes `out = softmax(scores) * v` and the log-sum-exp of the scores of each row. [Dropout](WeightDropout)
    /// changes the weights of the values alone, and not the log-sum-exp. A row without visible keys
    /// gets zeros, and a log-sum-exp of `-inf` (or its sink).
    ///
    /// With bf16 operands, weights (and in backward gradients of scores) may be rounded before they are multiplied.
    fn attention(&self, shape: &AttentionShape, args: AttentionArgs);
    /// Computes the backward of [`attention`](Self::attention) over any part of the keys: `out` and `lse` are the
    /// results over all keys that the queries attended to, so gradients of several parts add up.
    fn attention_backward(&self, shape: &AttentionShape, args: AttentionBackwardArgs);
    /// Merges the attention of the same queries over other keys into `sum` and `sum_lse`, weighted by the exponentials
    /// of both log-sum-exps (Liu et al. 2023, "Ring Attention with Blockwise Transformers").
    fn merge_attention(&self, shape: &AttentionShape, args: MergeAttentionArgs);

    /// Checks that there are kernels for heads of `[head_dim, value_dim]` elements of a dtype.
    ///
    /// # Errors
    /// The limit of the device.
    fn check_attention_heads(&self, _dims: [usize; 2], _dtype: DType) -> Result<(), String> {
        Ok(())
    }

    /// Describes the implementations that attention has run on so far, and why; `None` if there is only one, or none
    /// has run.
    fn attention_implementations(&self) -> Option<String> {
        None
    }
}

impl AttentionOps for DryRunBackend {
    fn attention(&self, _: &AttentionShape, _: AttentionArgs) {}
    fn attention_backward(&self, _: &AttentionShape, _: AttentionBackwardArgs) {}
    fn merge_attention(&self, _: &AttentionShape, _: MergeAttentionArgs) {}
}

/// Positions of one operand: their number in a sample, and the distance between samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SequenceLayout {
    /// Positions of a sample.
    pub len: usize,
    /// Positions from the beginning of a sample to that of the next one; at least `len`.
    pub pitch: usize,
}

impl SequenceLayout {
    /// Creates the layout of samples of `len` positions without gaps between them.
    pub fn dense(len: usize) -> Self {
        SequenceLayout { len, pitch: len }
    }

    /// Returns the positions from the first one of the first sample to the last one of the last of `batch` samples.
    pub fn span(&self, batch: usize) -> usize {
        if batch == 0 { 0 } else { (batch - 1) * self.pitch + self.len }
    }
}

/// The keys that a query sees by its position: from `before` positions before its own to `after` positions after it.
///
/// The position of query `i` is that of key `i + offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Band {
    /// Index of the key at the position of query 0; may lie outside of the keys.
    pub offset: isize,
    /// Visible positions before that of the query; `None`: all.
    pub before: Option<usize>,
    /// Visible positions after that of the query; `None`: all.
    pub after: Option<usize>,
}

impl Band {
    /// Every query sees every key.
    pub const ALL: Band = Band { offset: 0, before: None, after: None };
    /// Query `i` sees the keys `0..=i`.
    pub const CAUSAL: Band = Band { offset: 0, before: None, after: Some(0) };

    /// Returns the range of keys, out of `keys`, that a query sees. Empty ranges may begin anywhere in `0..=keys`.
    ///
    /// Both ends never decrease from one query to the next.
    pub fn visible(&self, query: usize, keys: usize) -> Range<usize> {
        let at = query as isize + self.offset;
        let clamp = |key: isize| key.clamp(0, keys as isize) as usize;
        let start = self.before.map_or(0, |before| clamp(at.saturating_sub_unsigned(before)));
        let end = self.after.map_or(keys, |after| clamp(at.saturating_add_unsigned(after) + 1));
        start..end.max(start)
    }

    /// Returns the number of visible query-key pairs of `queries` queries and `keys` keys.
    pub fn pairs(&self, queries: usize, keys: usize) -> u64 {
        let ends = |bound: isize| sum_of_clamped(self.offset + bound, queries, keys);
        let end = self.after.map_or((queries * keys) as u64, |after| ends(after as isize + 1));
        let start = self.before.map_or(0, |before| ends(-(before as isize)));
        end.saturating_sub(start)
    }
}

/// Returns the sum of `first + query`, clamped to `0..=keys`, over all queries.
fn sum_of_clamped(first: isize, queries: usize, keys: usize) -> u64 {
    // Queries before the first positive sum, and before the first one that is clamped to `keys`.
    let before = |bound: isize| (bound - first).clamp(0, queries as isize) as u64;
    let [rising, full] = [before(1), before(keys as isize + 1).max(before(1))];
    let first_term = (first + rising as isize).max(0) as u64;
    let count = full - rising;
    count * first_term + count * count.saturating_sub(1) / 2 + (queries as u64 - full) * keys as u64
}

/// Sizes of scaled dot-product attention with grouped key/value heads.
///
/// Queries and their gradient are `[batch, queries, heads, head_dim]`, the output and its gradient `[batch, queries,
/// heads, value_dim]`, keys `[batch, keys, kv_heads, head_dim]`, values `[batch, keys, kv_heads, value_dim]`. Views
/// begin at the first position of the first sample, and end at or after the last position of the last sample; the
/// positions between samples (those from `len` to `pitch`) are neither read nor written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionShape {
    /// Samples.
    pub batch: usize,
    /// Positions of queries, of the output and of log-sum-exps.
    pub queries: SequenceLayout,
    /// Positions of keys and values.
    pub keys: SequenceLayout,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Query heads that read one key/value head: head `h` reads the key/value head `(first_head + h) / group`.
    pub group: usize,
    /// Query heads before the first one that read the same key/value heads.
    pub first_head: usize,
    /// Elements of one head of queries and keys.
    pub head_dim: usize,
    /// Elements of one head of values and of the output.
    pub value_dim: usize,
    /// Factor on the scores before the softmax, usually `head_dim^-1/2`; positive.
    pub scale: f32,
    /// `cap` of `cap * tanh(scaled score / cap)` (Gemma Team 2024); positive.
    pub soft_cap: Option<f32>,
    /// The keys that a query sees by its position.
    pub band: Band,
    /// Dropout of weights.
    pub dropout: Option<WeightDropout>,
}

impl AttentionShape {
    /// Creates the shape of self-attention over `seq` positions with `[heads, kv_heads, head_dim]` and the usual scale.
    pub fn new(
        batch: usize,
        seq: usize,
        [heads, kv_heads, head_dim]: [usize; 3],
        band: Band,
    ) -> Self {
        AttentionShape {
            batch,
            queries: SequenceLayout::dense(seq),
            keys: SequenceLayout::dense(seq),
            heads,
            kv_heads,
            group: heads / kv_heads.max(1),
            first_head: 0,
            head_dim,
            value_dim: head_dim,
            scale: 1.0 / (head_dim as f32).sqrt(),
            soft_cap: None,
            band,
            dropout: None,
        }
    }

    /// Returns the floating-point operations of matmuls over the elements of a head of keys, and of values, for each
    /// visible pair: two per multiply-add. Pairs that key ranges mask count too.
    pub fn flops(&self, [of_keys, of_values]: [usize; 2]) -> u64 {
        let elements = (of_keys * self.head_dim + of_values * self.value_dim) as u64;
        let pairs = self.band.pairs(self.queries.len, self.keys.len);
        2 * elements * (self.batch * self.heads) as u64 * pairs
    }

    /// Returns the key/value head that a query head reads.
    pub fn kv_head(&self, head: usize) -> usize {
        (self.first_head + head) / self.group
    }

    /// Returns the query heads that read a key/value head.
    pub fn heads_of(&self, kv_head: usize) -> Range<usize> {
        let head = |kv_head: usize| (kv_head * self.group).saturating_sub(self.first_head);
        head(kv_head).min(self.heads)..head(kv_head + 1).min(self.heads)
    }
}

/// The keys that each query sees, of those in its [`Band`]: of query `i`, keys `first[i]..end[i]`; none if this is
/// empty.
///
/// Both are u32 `[batch, queries]` with the pitch of the queries. Neither decreases from one query of a sample to the
/// next.
#[derive(Clone, Copy)]
pub struct KeyRanges<'a> {
    /// First visible key of each query.
    pub first: View<'a>,
    /// End of the visible keys of each query; at most the number of keys.
    pub end: View<'a>,
}

/// A bias on scores that depends on the head and on the distance of the key from the query: ALiBi (Press et al. 2022),
/// T5 (Raffel et al. 2020).
///
/// The bias of query `i` and key `j` is `values[head][j - i - band.offset + zero]`; the index is clamped to
/// `0..distances`.
#[derive(Clone, Copy)]
pub struct DistanceBias<'a> {
    /// f32 `[heads, distances]`.
    pub values: View<'a>,
    /// Distances of a head.
    pub distances: usize,
    /// Index of the bias of a key at the position of its query.
    pub zero: usize,
}

/// Operands of [`AttentionOps::attention`].
pub struct AttentionArgs<'a> {
    /// Queries.
    pub q: View<'a>,
    /// Keys.
    pub k: View<'a>,
    /// Values.
    pub v: View<'a>,
    /// The keys that each query sees, if fewer than in the band.
    pub ranges: Option<KeyRanges<'a>>,
    /// Bias on the scores.
    pub bias: Option<DistanceBias<'a>>,
    /// Score of a key without a value that every query of a head sees, f32 `[heads]` (attention sinks, Agarwal et al.
    /// 2025).
    pub sinks: Option<View<'a>>,
    /// Output, written; of the dtype of the queries, or f32.
    pub out: ViewMut<'a>,
    /// Log-sum-exp of the scores of each row, sinks included, f32 `[batch, heads, queries.pitch]`, written.
    pub lse: ViewMut<'a>,
}

/// Operands of [`AttentionOps::attention_backward`].
pub struct AttentionBackwardArgs<'a> {
    /// Queries.
    pub q: View<'a>,
    /// Keys.
    pub k: View<'a>,
    /// Values.
    pub v: View<'a>,
    /// The keys that each query sees, if fewer than in the band.
    pub ranges: Option<KeyRanges<'a>>,
    /// Bias on the scores.
    pub bias: Option<DistanceBias<'a>>,
    /// Sinks of the forward pass; read for `dsinks` only, since `lse` includes them.
    pub sinks: Option<View<'a>>,
    /// Output of the forward pass; of the dtype of the queries, or f32.
    pub out: View<'a>,
    /// Log-sum-exp of the forward pass.
    pub lse: View<'a>,
    /// Gradient of the output, of the dtype of the queries.
    pub dout: View<'a>,
    /// True: `dq`, `dk`, `dv` and `dbias` are accumulated. False: they are written.
    pub accumulate: bool,
    /// Gradient of the queries; of the dtype of the queries, or f32.
    pub dq: ViewMut<'a>,
    /// Gradient of the keys; of the dtype of the queries, or f32.
    pub dk: ViewMut<'a>,
    /// Gradient of the values; of the dtype of `dk`.
    pub dv: ViewMut<'a>,
    /// Gradient of the values of the bias, f32 `[heads, distances]`.
    pub dbias: Option<ViewMut<'a>>,
    /// Gradient of the sinks, f32 `[heads]`, written.
    pub dsinks: Option<ViewMut<'a>>,
}

/// Operands of [`AttentionOps::merge_attention`], all f32: outputs are `[batch, queries, heads, value_dim]`,
/// log-sum-exps `[batch, heads, queries.pitch]`.
pub struct MergeAttentionArgs<'a> {
    /// Output over other keys.
    pub out: View<'a>,
    /// Log-sum-exp over other keys.
    pub lse: View<'a>,
    /// Output over all keys so far, updated.
    pub sum: ViewMut<'a>,
    /// Log-sum-exp over all keys so far, updated.
    pub sum_lse: ViewMut<'a>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compared with the sum over queries.
    #[test]
    fn pairs_of_bands() {
        let bounds = [None, Some(0), Some(1), Some(3), Some(20)];
        for (queries, keys) in [(0, 4), (4, 0), (1, 1), (5, 5), (7, 3), (3, 9)] {
            for offset in -12..12 {
                for before in bounds {
                    for after in bounds {
                        let band = Band { offset, before, after };
                        let each = (0..queries).map(|query| band.visible(query, keys).len() as u64);
                        let pairs = band.pairs(queries, keys);
                        assert_eq!(pairs, each.sum::<u64>(), "{band:?} {queries} {keys}");
                    }
                }
            }
        }
    }
}
