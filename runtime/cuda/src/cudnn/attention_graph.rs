//! The operation graphs of attention: forward and backward pass.

use std::fmt;

use super::attention_sizes::CudnnAttentionSizes;
use super::graph::{
    ElementType, GraphBuilder, GraphOperand, GraphScalar, OperationGraph, Pointwise, Reduction,
    TensorId,
};
use super::mask::{MaskScalars, mask};

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
    pub fn graph(self, sizes: CudnnAttentionSizes) -> OperationGraph {
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
pub fn forward(sizes: CudnnAttentionSizes) -> OperationGraph {
    let mut g = GraphBuilder::new(sizes.scores());
    let CudnnAttentionSizes { head_dim, value_dim, .. } = sizes;
    let q = g.operand(GraphOperand::Q, ElementType::Bf16, sizes.of_queries(head_dim));
    let k = g.operand(GraphOperand::K, ElementType::Bf16, sizes.of_keys_transposed(head_dim));
    let v = g.operand(GraphOperand::V, ElementType::Bf16, sizes.of_keys(value_dim));
    let out = g.operand(GraphOperand::Out, ElementType::Bf16, sizes.of_queries(value_dim));
    let lse = g.operand(GraphOperand::Lse, ElementType::F32, sizes.per_row());
    let scale = g.scalar(GraphScalar::Scale);
    let limits = MaskScalars::new(&mut g, sizes.mask);

    let products = g.scores();
    g.matmul(q, k, products);
    let scaled = g.score_op(Pointwise::Mul, products, scale);
    let scores = mask(&mut g, scaled, limits);

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
/// - nondeterministic: blocks add to an f32 tensor by atomics, in the order of their execution;
/// - deterministic: `dq` is a matmul, computed in a fixed order from score gradients that the library stores in its
///   workspace if necessary.
///
/// The form of the graph requests determinism: the engines' numerical notes do not tell the two apart.
pub fn backward(sizes: CudnnAttentionSizes, deterministic: bool) -> OperationGraph {
    let mut g = GraphBuilder::new(sizes.scores());
    let CudnnAttentionSizes { head_dim, value_dim, .. } = sizes;
    let q = g.operand(GraphOperand::Q, ElementType::Bf16, sizes.of_queries(head_dim));
    let k = g.operand(GraphOperand::K, ElementType::Bf16, sizes.of_keys_transposed(head_dim));
    let v = g.operand(GraphOperand::V, ElementType::Bf16, sizes.of_keys_transposed(value_dim));
    let out = g.operand(GraphOperand::Out, ElementType::Bf16, sizes.of_queries(value_dim));
    let dout = g.operand(GraphOperand::DOut, ElementType::Bf16, sizes.of_queries(value_dim));
    let lse = g.operand(GraphOperand::Lse, ElementType::F32, sizes.per_row());
    let dq = g.operand(GraphOperand::DQ, ElementType::Bf16, sizes.of_queries(head_dim));
    let dk = g.operand(GraphOperand::DK, ElementType::Bf16, sizes.of_keys(head_dim));
    let dv = g.operand(GraphOperand::DV, ElementType::Bf16, sizes.of_keys(value_dim));
    let row_sum = g.operand(GraphOperand::RowSum, ElementType::F32, sizes.per_row());
    let scale = g.scalar(GraphScalar::Scale);
    let one = g.scalar(GraphScalar::One);
    let limits = MaskScalars::new(&mut g, sizes.mask);

    let products = g.intermediate(ElementType::F32, sizes.by_head(sizes.queries, value_dim));
    g.binary(Pointwise::Mul, dout, out, products);
    let sum = g.intermediate(ElementType::F32, sizes.per_row());
    g.reduce(Reduction::Sum, products, sum);
    g.binary(Pointwise::Mul, sum, one, row_sum);

    let products = g.scores();
    g.matmul(q, k, products);
    let scaled = g.score_op(Pointwise::Mul, products, scale);
    let logarithms = g.score_op(Pointwise::Sub, scaled, lse);
    let logarithms = mask(&mut g, logarithms, limits);
    let weights = g.scores();
    g.unary(Pointwise::Exp, logarithms, weights);
    times_transposed(&mut g, sizes, weights, (dout, value_dim), dv);

    let products = g.scores();
    g.matmul(dout, v, products);
    let centered = g.score_op(Pointwise::Sub, products, row_sum);
    let dscores = g.score_op(Pointwise::Mul, centered, weights);
    let dscores = g.score_op(Pointwise::Mul, dscores, scale);
    times_transposed(&mut g, sizes, dscores, (q, head_dim), dk);

    let keys = g.intermediate(ElementType::F32, sizes.of_keys(head_dim));
    g.transpose(k, keys);
    if deterministic {
        g.matmul(dscores, keys, dq);
    } else {
        let form = sizes.by_head(sizes.queries, head_dim);
        let dq_sum = g.operand(GraphOperand::DQSum, ElementType::F32, form);
        g.matmul(dscores, keys, dq_sum);
        g.unary(Pointwise::Identity, dq_sum, dq);
    }
    g.finish()
}

/// Adds `result = scores^T * rows`, of rows of `dim` elements, summed over the query heads of a key/value head.
fn times_transposed(
    g: &mut GraphBuilder,
    sizes: CudnnAttentionSizes,
    scores: TensorId,
    (rows, dim): (TensorId, i64),
    result: TensorId,
) {
    let transposed = g.intermediate(ElementType::Bf16, sizes.scores_transposed());
    g.transpose(scores, transposed);
    if sizes.is_grouped() {
        let form = sizes.by_head(sizes.keys, dim);
        let of_each_head = g.intermediate(ElementType::Bf16, form);
        g.matmul(transposed, rows, of_each_head);
        g.reduce(Reduction::Sum, of_each_head, result);
    } else {
        g.matmul(transposed, rows, result);
    }
}
