//! The attention that the vendor library computes: sizes and operands.

use crate::backend::{AttentionShape, Band, SequenceLayout};

/// Sizes of self-attention over samples without gaps between them: the part of [`AttentionShape`] that the fused kernels of
/// the vendor library take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DenseAttention {
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
    /// Factor on the scores before the softmax.
    pub scale: f32,
    /// Position `i` attends to positions `0..=i` only.
    pub causal: bool,
}

impl DenseAttention {
    /// Returns the same sizes, or `None` if they are not those of dense self-attention.
    pub fn of(s: &AttentionShape) -> Option<DenseAttention> {
        let &AttentionShape { batch, queries, heads, kv_heads, head_dim, scale, .. } = s;
        let seq = queries.len;
        let causal = match s.band {
            Band::ALL => false,
            Band::CAUSAL => true,
            _ => return None,
        };
        let dense = s.queries == SequenceLayout::dense(seq)
            && s.keys == s.queries
            && s.first_head == 0
            && s.group * kv_heads == heads
            && s.value_dim == head_dim
            && s.soft_cap.is_none();
        dense.then_some(DenseAttention { batch, seq, heads, kv_heads, head_dim, scale, causal })
    }
}

/// Device addresses of the operands of fused attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionOperands {
    /// Queries.
    pub q: u64,
    /// Keys.
    pub k: u64,
    /// Values.
    pub v: u64,
    /// Output.
    pub out: u64,
    /// Log-sum-exp of the scores of each row, f32 `[batch, heads, seq]`.
    pub lse: u64,
}

/// Device addresses of the gradients of fused attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionGradients {
    /// Gradient of the output.
    pub dout: u64,
    /// Gradient of the queries.
    pub dq: u64,
    /// Gradient of the keys.
    pub dk: u64,
    /// Gradient of the values.
    pub dv: u64,
}
