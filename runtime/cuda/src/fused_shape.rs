//! The attention that the vendor library computes: sizes and operands.

use meshwright_backend::{AttentionShape, Band, SequenceLayout};

/// Sizes of attention without soft caps, dropout and optional operands, over queries without gaps between samples: the
/// part of [`AttentionShape`] that the fused kernels of the vendor library may take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FusedShape {
    /// Samples.
    pub batch: usize,
    /// Positions of queries, of the output and of log-sum-exps of a sample.
    pub queries: usize,
    /// Positions of keys and values.
    pub keys: SequenceLayout,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; divides `heads`.
    pub kv_heads: usize,
    /// Elements of one head of queries and keys.
    pub head_dim: usize,
    /// Elements of one head of values and of the output.
    pub value_dim: usize,
    /// Factor on the scores before the softmax.
    pub scale: f32,
    /// The keys that a query sees by its position.
    pub band: Band,
}

impl FusedShape {
    /// Returns the same sizes, or the reason why fused kernels do not take them.
    pub fn from_attention(s: &AttentionShape) -> Result<FusedShape, &'static str> {
        let &AttentionShape { batch, queries, keys, heads, kv_heads, head_dim, value_dim, .. } = s;
        if queries.pitch != queries.len {
            // The library documents no gaps between rows of log-sum-exps.
            return Err("there are gaps between the queries of samples");
        }
        if s.first_head != 0 || s.group * kv_heads != heads {
            return Err("the query heads are a part of the group of a key/value head");
        }
        if s.soft_cap.is_some() {
            return Err("scores have a soft cap");
        }
        if s.dropout.is_some() {
            return Err("weights have dropout");
        }
        let (queries, scale, band) = (queries.len, s.scale, s.band);
        Ok(FusedShape { batch, queries, keys, heads, kv_heads, head_dim, value_dim, scale, band })
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
    /// Log-sum-exp of the scores of each row, f32 `[batch, heads, queries]`.
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
