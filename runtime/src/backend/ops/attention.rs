//! Scaled dot-product attention.

use crate::backend::{View, ViewMut};

/// Attention kernels.
pub trait AttentionOps {
    /// Computes `out = softmax(q * k^T * scale) * v` without a `seq x seq` matrix (Dao et al. 2022).
    ///
    /// With bf16 operands, weights (and in backward gradients of scores) may be rounded before they are multiplied.
    fn attention(&self, shape: &AttentionShape, args: AttentionArgs);
    /// Computes the backward of [`attention`](Self::attention).
    fn attention_backward(&self, shape: &AttentionShape, args: AttentionBackwardArgs);
}

/// Sizes of scaled dot-product attention with grouped key/value heads.
///
/// `q` and the output are `[batch, seq, heads, head_dim]`, `k` and `v` are `[batch, seq, kv_heads, head_dim]`;
/// query head `h` reads key/value head `h / (heads / kv_heads)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionShape {
    /// Samples.
    pub batch: usize,
    /// Positions of queries and of keys.
    pub seq: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; divides `heads`.
    pub kv_heads: usize,
    /// Elements of one head.
    pub head_dim: usize,
    /// Factor on the scores before the softmax, usually `head_dim^-1/2`.
    pub scale: f32,
    /// Position `i` attends to positions `0..=i` only.
    pub causal: bool,
}

/// Operands of [`AttentionOps::attention`].
pub struct AttentionArgs<'a> {
    /// Queries.
    pub q: View<'a>,
    /// Keys.
    pub k: View<'a>,
    /// Values.
    pub v: View<'a>,
    /// Output, written.
    pub out: ViewMut<'a>,
    /// Log-sum-exp of the scaled scores of each row, f32 `[batch, heads, seq]`, written.
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
    /// Output of the forward pass.
    pub out: View<'a>,
    /// Log-sum-exp of the forward pass.
    pub lse: View<'a>,
    /// Gradient of the output.
    pub dout: View<'a>,
    /// Gradient of the queries, written.
    pub dq: ViewMut<'a>,
    /// Gradient of the keys, written.
    pub dk: ViewMut<'a>,
    /// Gradient of the values, written.
    pub dv: ViewMut<'a>,
}
