//! Sizes of attention and memory layouts of its tensors.

use std::fmt;

use crate::backend::AttentionShape;

use super::backward::backward;
use super::forward::forward;
use super::graph::{Four, Graph};

/// The part of an [`AttentionShape`] that a plan depends on: everything except the scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sizes {
    /// Batch size.
    pub batch: i64,
    /// Sequence length.
    pub seq: i64,
    /// Number of query heads.
    pub heads: i64,
    /// Number of key/value heads.
    pub kv_heads: i64,
    /// Elements per head.
    pub head_dim: i64,
    /// True if a position attends to itself and earlier positions only.
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

/// Each layout is sizes and strides in the library's order: batch, head, row, column.
impl Sizes {
    /// Returns the layout of a tensor `[batch, seq, heads, head_dim]` with positions as rows.
    pub fn rows(&self, heads: i64) -> (Four, Four) {
        let (seq, dim) = (self.seq, self.head_dim);
        ([self.batch, heads, seq, dim], [heads * seq * dim, dim, heads * dim, 1])
    }

    /// Returns the layout of the same memory as [`rows`](Self::rows) with positions as columns.
    pub fn columns(&self, heads: i64) -> (Four, Four) {
        let (seq, dim) = (self.seq, self.head_dim);
        ([self.batch, heads, dim, seq], [heads * seq * dim, dim, 1, heads * dim])
    }

    /// Returns the layout of a tensor `[batch, heads, seq, head_dim]`, as intermediates and scratch tensors have.
    pub fn by_head(&self) -> (Four, Four) {
        let (heads, seq, dim) = (self.heads, self.seq, self.head_dim);
        ([self.batch, heads, seq, dim], [heads * seq * dim, seq * dim, dim, 1])
    }

    /// Returns the layout of one number per row of the scores.
    pub fn per_row(&self) -> (Four, Four) {
        let (heads, seq) = (self.heads, self.seq);
        ([self.batch, heads, seq, 1], [heads * seq, seq, 1, 1])
    }

    /// Returns the layout of the scores.
    pub fn scores(&self) -> (Four, Four) {
        let (heads, seq) = (self.heads, self.seq);
        ([self.batch, heads, seq, seq], [heads * seq * seq, seq * seq, seq, 1])
    }

    /// Returns the layout of the transposed scores.
    pub fn scores_transposed(&self) -> (Four, Four) {
        let (sizes, [batch, head, row, col]) = self.scores();
        (sizes, [batch, head, col, row])
    }

    /// Returns true if several query heads share a key/value head.
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

/// A pass of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pass {
    /// Computes the output.
    Forward,
    /// Computes the gradients.
    Backward {
        /// Require bitwise equal results in every run.
        deterministic: bool,
    },
}

impl Pass {
    /// Returns the operation graph of the pass.
    pub fn graph(self, sizes: Sizes) -> Graph {
        match self {
            Pass::Forward => forward(sizes),
            Pass::Backward { deterministic } => backward(sizes, deterministic),
        }
    }

    /// Returns true if results must be the same in every run. The forward pass always is.
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
