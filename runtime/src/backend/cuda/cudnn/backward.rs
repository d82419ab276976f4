//! The operation graph of the backward pass.

use super::graph::{Builder, Element, Graph, Operand, Pointwise, Reduction, Scalar, TensorId};
use super::sizes::Sizes;

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
pub fn backward(sizes: Sizes, deterministic: bool) -> Graph {
    let mut g = Builder::new(sizes);
    let q = g.operand(Operand::Q, Element::Bf16, sizes.rows(sizes.heads));
    let k = g.operand(Operand::K, Element::Bf16, sizes.columns(sizes.kv_heads));
    let v = g.operand(Operand::V, Element::Bf16, sizes.columns(sizes.kv_heads));
    let out = g.operand(Operand::Out, Element::Bf16, sizes.rows(sizes.heads));
    let dout = g.operand(Operand::DOut, Element::Bf16, sizes.rows(sizes.heads));
    let lse = g.operand(Operand::Lse, Element::F32, sizes.per_row());
    let dq = g.operand(Operand::DQ, Element::Bf16, sizes.rows(sizes.heads));
    let dk = g.operand(Operand::DK, Element::Bf16, sizes.rows(sizes.kv_heads));
    let dv = g.operand(Operand::DV, Element::Bf16, sizes.rows(sizes.kv_heads));
    let row_sum = g.operand(Operand::RowSum, Element::F32, sizes.per_row());
    let scale = g.scalar(Scalar::Scale);
    let one = g.scalar(Scalar::One);
    let masked = sizes.causal.then(|| g.scalar(Scalar::Masked));

    let products = g.inner(Element::F32, sizes.by_head());
    g.binary(Pointwise::Mul, dout, out, products);
    let sum = g.inner(Element::F32, sizes.per_row());
    g.reduce(Reduction::Sum, products, sum);
    g.binary(Pointwise::Mul, sum, one, row_sum);

    let products = g.scores();
    g.matmul(q, k, products);
    let scaled = g.of_scores(Pointwise::Mul, products, scale);
    let logarithms = g.of_scores(Pointwise::Sub, scaled, lse);
    let logarithms = g.mask(logarithms, masked);
    let weights = g.scores();
    g.unary(Pointwise::Exp, logarithms, weights);
    times_transposed(&mut g, sizes, weights, dout, dv);

    let products = g.scores();
    g.matmul(dout, v, products);
    let centred = g.of_scores(Pointwise::Sub, products, row_sum);
    let dscores = g.of_scores(Pointwise::Mul, centred, weights);
    let dscores = g.of_scores(Pointwise::Mul, dscores, scale);
    times_transposed(&mut g, sizes, dscores, q, dk);

    let keys = g.inner(Element::F32, sizes.rows(sizes.kv_heads));
    g.transpose(k, keys);
    if deterministic {
        g.matmul(dscores, keys, dq);
    } else {
        let dq_sum = g.operand(Operand::DQSum, Element::F32, sizes.by_head());
        g.matmul(dscores, keys, dq_sum);
        g.unary(Pointwise::Identity, dq_sum, dq);
    }
    g.finish()
}

/// Adds `result = scores^T * rows`, summed over the query heads of a key/value head.
fn times_transposed(
    g: &mut Builder,
    sizes: Sizes,
    scores: TensorId,
    rows: TensorId,
    result: TensorId,
) {
    let transposed = g.inner(Element::Bf16, sizes.scores_transposed());
    g.transpose(scores, transposed);
    if sizes.is_grouped() {
        let of_each_head = g.inner(Element::Bf16, sizes.by_head());
        g.matmul(transposed, rows, of_each_head);
        g.reduce(Reduction::Sum, of_each_head, result);
    } else {
        g.matmul(transposed, rows, result);
    }
}
