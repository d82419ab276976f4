//! The operation graphs of attention: sizes, memory layouts, forward and backward pass.

use std::fmt;

use crate::backend::AttentionShape;

use super::graph::{
    Dims, ElementType, GraphBuilder, GraphOperand, GraphScalar, OperationGraph, Pointwise,
    Reduction, TensorId,
};

/// The part of an [`AttentionShape`] that a plan depends on: everything except the scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttentionSizes {
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

impl From<&AttentionShape> for AttentionSizes {
    fn from(s: &AttentionShape) -> AttentionSizes {
        AttentionSizes {
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
impl AttentionSizes {
    /// Returns the layout of a tensor `[batch, seq, heads, head_dim]` with positions as rows.
    pub fn rows(&self, heads: i64) -> (Dims, Dims) {
        let (seq, dim) = (self.seq, self.head_dim);
        ([self.batch, heads, seq, dim], [heads * seq * dim, dim, heads * dim, 1])
    }

    /// Returns the layout of the same memory as [`rows`](Self::rows) with positions as columns.
    pub fn columns(&self, heads: i64) -> (Dims, Dims) {
        let (seq, dim) = (self.seq, self.head_dim);
        ([self.batch, heads, dim, seq], [heads * seq * dim, dim, 1, heads * dim])
    }

    /// Returns the layout of a tensor `[batch, heads, seq, head_dim]`, as intermediates and scratch tensors have.
    pub fn by_head(&self) -> (Dims, Dims) {
        let (heads, seq, dim) = (self.heads, self.seq, self.head_dim);
        ([self.batch, heads, seq, dim], [heads * seq * dim, seq * dim, dim, 1])
    }

    /// Returns the layout of one number per row of the scores.
    pub fn per_row(&self) -> (Dims, Dims) {
        let (heads, seq) = (self.heads, self.seq);
        ([self.batch, heads, seq, 1], [heads * seq, seq, 1, 1])
    }

    /// Returns the layout of the scores.
    pub fn scores(&self) -> (Dims, Dims) {
        let (heads, seq) = (self.heads, self.seq);
        ([self.batch, heads, seq, seq], [heads * seq * seq, seq * seq, seq, 1])
    }

    /// Returns the layout of the transposed scores.
    pub fn scores_transposed(&self) -> (Dims, Dims) {
        let (sizes, [batch, head, row, col]) = self.scores();
        (sizes, [batch, head, col, row])
    }

    /// Returns true if several query heads share a key/value head.
    pub fn is_grouped(&self) -> bool {
        self.heads != self.kv_heads
    }
}

impl fmt::Display for AttentionSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AttentionSizes { batch, seq, heads, kv_heads, head_dim, causal } = self;
        write!(
            f,
            "batch {batch}, seq {seq}, heads {heads}/{kv_heads}, head_dim {head_dim}, {}",
            if *causal { "causal" } else { "not causal" }
        )
    }
}

/// A pass of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttentionPass {
    /// Computes the output.
    Forward,
    /// Computes the gradients.
    Backward {
        /// Require bitwise equal results in every run.
        deterministic: bool,
    },
}

impl AttentionPass {
    /// Returns the operation graph of the pass.
    pub fn graph(self, sizes: AttentionSizes) -> OperationGraph {
        match self {
            AttentionPass::Forward => forward(sizes),
            AttentionPass::Backward { deterministic } => backward(sizes, deterministic),
        }
    }

    /// Returns true if results must be the same in every run. The forward pass always is.
    pub fn is_deterministic(self) -> bool {
        self != AttentionPass::Backward { deterministic: false }
    }
}

impl fmt::Display for AttentionPass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AttentionPass::Forward => "attention",
            AttentionPass::Backward { deterministic: true } => {
                "the deterministic backward of attention"
            }
            AttentionPass::Backward { deterministic: false } => "the backward of attention",
        })
    }
}

/// Returns the graph of `out = softmax(scale * q * k^T) * v` and the log-sum-exp of the scores.
///
/// The library recognizes the pattern as attention and runs one kernel that stores no scores.
pub fn forward(sizes: AttentionSizes) -> OperationGraph {
    let mut g = GraphBuilder::new(sizes.scores());
    let q = g.operand(GraphOperand::Q, ElementType::Bf16, sizes.rows(sizes.heads));
    let k = g.operand(GraphOperand::K, ElementType::Bf16, sizes.columns(sizes.kv_heads));
    let v = g.operand(GraphOperand::V, ElementType::Bf16, sizes.rows(sizes.kv_heads));
    let out = g.operand(GraphOperand::Out, ElementType::Bf16, sizes.rows(sizes.heads));
    let lse = g.operand(GraphOperand::Lse, ElementType::F32, sizes.per_row());
    let scale = g.scalar(GraphScalar::Scale);
    let masked = sizes.causal.then(|| g.scalar(GraphScalar::Masked));

    let products = g.scores();
    g.matmul(q, k, products);
    let scaled = g.score_op(Pointwise::Mul, products, scale);
    let scores = g.mask(scaled, masked);

    let max = g.intermediate(ElementType::F32, sizes.per_row());
    g.reduce(Reduction::Max, scores, max);
    let below_max = g.score_op(Pointwise::Sub, scores, max);
    let powers = g.scores();
    g.unary(Pointwise::Exp, below_max, powers);
    let sum = g.intermediate(ElementType::F32, sizes.per_row());
    g.reduce(Reduction::Sum, powers, sum);

    let log = g.intermediate(ElementType::F32, sizes.per_row());
    g.unary(Pointwise::Log, sum, log);
    g.binary(Pointwise::Add, max, log, lse);

    let weights = g.intermediate(ElementType::Bf16, sizes.scores());
    g.binary(Pointwise::Div, powers, sum, weights);
    g.matmul(weights, v, out);
    g.finish()
}

/// Returns the graph of `dq`, `dk` and `dv` from the output, its gradient and the log-sum-exp of each row.
///
/// With `p = exp(scale * q * k^T - lse)` and `row_sum = sum(dout * out)` per row: `dv = p^T * dout`, `ds = scale * p *
/// (dout * v^T - row_sum)`, `dq = ds * k`, `dk = ds^T * q` (Dao et al. 2022). Gradients of a key/value head are summed
/// over its query heads.
///
/// Every block of keys contributes to `dq`, in one of two forms:
/// - nondeterministic: blocks add to an f32 tensor by atomics, in the order in which they happen to run;
/// - deterministic: `dq` is a matmul, computed in a fixed order from score gradients that the library stores in its
///   workspace if necessary.
///
/// The form of the graph requests determinism: the engines' numerical notes do not tell the two apart.
pub fn backward(sizes: AttentionSizes, deterministic: bool) -> OperationGraph {
    let mut g = GraphBuilder::new(sizes.scores());
    let q = g.operand(GraphOperand::Q, ElementType::Bf16, sizes.rows(sizes.heads));
    let k = g.operand(GraphOperand::K, ElementType::Bf16, sizes.columns(sizes.kv_heads));
    let v = g.operand(GraphOperand::V, ElementType::Bf16, sizes.columns(sizes.kv_heads));
    let out = g.operand(GraphOperand::Out, ElementType::Bf16, sizes.rows(sizes.heads));
    let dout = g.operand(GraphOperand::DOut, ElementType::Bf16, sizes.rows(sizes.heads));
    let lse = g.operand(GraphOperand::Lse, ElementType::F32, sizes.per_row());
    let dq = g.operand(GraphOperand::DQ, ElementType::Bf16, sizes.rows(sizes.heads));
    let dk = g.operand(GraphOperand::DK, ElementType::Bf16, sizes.rows(sizes.kv_heads));
    let dv = g.operand(GraphOperand::DV, ElementType::Bf16, sizes.rows(sizes.kv_heads));
    let row_sum = g.operand(GraphOperand::RowSum, ElementType::F32, sizes.per_row());
    let scale = g.scalar(GraphScalar::Scale);
    let one = g.scalar(GraphScalar::One);
    let masked = sizes.causal.then(|| g.scalar(GraphScalar::Masked));

    let products = g.intermediate(ElementType::F32, sizes.by_head());
    g.binary(Pointwise::Mul, dout, out, products);
    let sum = g.intermediate(ElementType::F32, sizes.per_row());
    g.reduce(Reduction::Sum, products, sum);
    g.binary(Pointwise::Mul, sum, one, row_sum);

    let products = g.scores();
    g.matmul(q, k, products);
    let scaled = g.score_op(Pointwise::Mul, products, scale);
    let logarithms = g.score_op(Pointwise::Sub, scaled, lse);
    let logarithms = g.mask(logarithms, masked);
    let weights = g.scores();
    g.unary(Pointwise::Exp, logarithms, weights);
    times_transposed(&mut g, sizes, weights, dout, dv);

    let products = g.scores();
    g.matmul(dout, v, products);
    let centered = g.score_op(Pointwise::Sub, products, row_sum);
    let dscores = g.score_op(Pointwise::Mul, centered, weights);
    let dscores = g.score_op(Pointwise::Mul, dscores, scale);
    times_transposed(&mut g, sizes, dscores, q, dk);

    let keys = g.intermediate(ElementType::F32, sizes.rows(sizes.kv_heads));
    g.transpose(k, keys);
    if deterministic {
        g.matmul(dscores, keys, dq);
    } else {
        let dq_sum = g.operand(GraphOperand::DQSum, ElementType::F32, sizes.by_head());
        g.matmul(dscores, keys, dq_sum);
        g.unary(Pointwise::Identity, dq_sum, dq);
    }
    g.finish()
}

/// Adds `result = scores^T * rows`, summed over the query heads of a key/value head.
fn times_transposed(
    g: &mut GraphBuilder,
    sizes: AttentionSizes,
    scores: TensorId,
    rows: TensorId,
    result: TensorId,
) {
    let transposed = g.intermediate(ElementType::Bf16, sizes.scores_transposed());
    g.transpose(scores, transposed);
    if sizes.is_grouped() {
        let of_each_head = g.intermediate(ElementType::Bf16, sizes.by_head());
        g.matmul(transposed, rows, of_each_head);
        g.reduce(Reduction::Sum, of_each_head, result);
    } else {
        g.matmul(transposed, rows, result);
    }
}
