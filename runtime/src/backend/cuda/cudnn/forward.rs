//! The operation graph of the forward pass.

use super::graph::{Builder, Element, Graph, Operand, Pointwise, Reduction, Scalar};
use super::sizes::Sizes;

/// Returns the graph of `out = softmax(scale * q * k^T) * v` and the log-sum-exp of the scores.
///
/// The library recognizes the pattern as attention and runs one kernel that stores no scores.
pub fn forward(sizes: Sizes) -> Graph {
    let mut g = Builder::new(sizes);
    let q = g.operand(Operand::Q, Element::Bf16, sizes.rows(sizes.heads));
    let k = g.operand(Operand::K, Element::Bf16, sizes.columns(sizes.kv_heads));
    let v = g.operand(Operand::V, Element::Bf16, sizes.rows(sizes.kv_heads));
    let out = g.operand(Operand::Out, Element::Bf16, sizes.rows(sizes.heads));
    let lse = g.operand(Operand::Lse, Element::F32, sizes.per_row());
    let scale = g.scalar(Scalar::Scale);
    let masked = sizes.causal.then(|| g.scalar(Scalar::Masked));

    let products = g.scores();
    g.matmul(q, k, products);
    let scaled = g.of_scores(Pointwise::Mul, products, scale);
    let scores = g.mask(scaled, masked);

    let max = g.inner(Element::F32, sizes.per_row());
    g.reduce(Reduction::Max, scores, max);
    let below_max = g.of_scores(Pointwise::Sub, scores, max);
    let powers = g.scores();
    g.unary(Pointwise::Exp, below_max, powers);
    let sum = g.inner(Element::F32, sizes.per_row());
    g.reduce(Reduction::Sum, powers, sum);

    let log = g.inner(Element::F32, sizes.per_row());
    g.unary(Pointwise::Log, sum, log);
    g.binary(Pointwise::Add, max, log, lse);

    let weights = g.inner(Element::Bf16, sizes.scores());
    g.binary(Pointwise::Div, powers, sum, weights);
    g.matmul(weights, v, out);
    g.finish()
}
