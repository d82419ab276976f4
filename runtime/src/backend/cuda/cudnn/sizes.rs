//! Sizes of attention, and how its tensors lie in memory.

use std::fmt;

use crate::backend::AttentionShape;

use super::backward::backward;
use super::forward::forward;
use super::graph::{Four, Graph};

/// The part of an [`AttentionShape`] that a plan depends on, all of it but the scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sizes {
    /// Samples.
    pub batch: i64,
    /// Positions.
    pub seq: i64,
    /// Query heads.
    pub heads: i64,
    /// Key/value heads.
    pub kv_heads: i64,
    /// Elements of one head.
    pub head_dim: i64,
    /// Whether a position reads those up to itself only.
    pub causal: bool,
}

impl From<&AttentionShape> for Sizes {
    fn from(s: &AttentionShape) -> Sizes {
        Sizes {
            batch: s.batch as i64,
            seq: s.seq as i64,
            heads: s.heads as i64,
            kv_heads: s.kv_heads as i64,
            head_dim: s.head_dim as i64,
            causal: s.causal,
        }
    }
}

/// Each function gives sizes and strides, in the order of the library: batch, head, row, column.
impl Sizes {
    /// A tensor in the order `[batch, seq, heads, head_dim]`: a position is a row.
    pub fn rows(&self, heads: i64) -> (Four, Four) {
        let (seq, dim) = (self.seq, self.head_dim);
        ([self.batch, heads, seq, dim], [heads * seq * dim, dim, heads * dim, 1])
    }

    /// The same memory as [`rows`](Self::rows), a position as a column.
    pub fn columns(&self, heads: i64) -> (Four, Four) {
        let (seq, dim) = (self.seq, self.head_dim);
        ([self.batch, heads, dim, seq], [heads * seq * dim, dim, 1, heads * dim])
    }

    /// A tensor in the order `[batch, heads, seq, head_dim]`, as intermediates and scratch are.
    pub fn by_head(&self) -> (Four, Four) {
        let (heads, seq, dim) = (self.heads, self.seq, self.head_dim);
        ([self.batch, heads, seq, dim], [heads * seq * dim, seq * dim, dim, 1])
    }

    /// One number for each row of the scores.
    pub fn per_row(&self) -> (Four, Four) {
        let (heads, seq) = (self.heads, self.seq);
        ([self.batch, heads, seq, 1], [heads * seq, seq, 1, 1])
    }

    /// The scores.
    pub fn scores(&self) -> (Four, Four) {
        let (heads, seq) = (self.heads, self.seq);
        ([self.batch, heads, seq, seq], [heads * seq * seq, seq * seq, seq, 1])
    }

    /// The scores with rows and columns exchanged.
    pub fn scores_transposed(&self) -> (Four, Four) {
        let (sizes, [batch, head, row, col]) = self.scores();
        (sizes, [batch, head, col, row])
    }

    /// Whether several query heads share a key/value head.
    pub fn is_grouped(&self) -> bool {
        self.heads != self.kv_heads
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sizes { batch, seq, heads, kv_heads, head_dim, causal } = self;
        write!(
            f,
            "batch {batch}, seq {seq}, heads {heads}/{kv_heads}, head_dim {head_dim}, {}",
            if *causal { "causal" } else { "not causal" }
        )
    }
}

/// What is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pass {
    /// The output.
    Forward,
    /// Gradients.
    Backward {
        /// The same bits in every run.
        deterministic: bool,
    },
}

impl Pass {
    /// What the library is given for it.
    pub fn graph(self, sizes: Sizes) -> Graph {
        match self {
            Pass::Forward => forward(sizes),
            Pass::Backward { deterministic } => backward(sizes, deterministic),
        }
    }

    /// Whether results have to be the same in every run. Those of the forward pass are.
    pub fn is_deterministic(self) -> bool {
        self != Pass::Backward { deterministic: false }
    }
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pass::Forward => "attention",
            Pass::Backward { deterministic: true } => "the deterministic backward of attention",
            Pass::Backward { deterministic: false } => "the backward of attention",
        })
    }
}
