//! Matmuls of layers, forward and backward.

use meshwright::backend::{DType, Gemm};

use super::report::{Report, Work};
use super::sizes::{Model, Sizes};

pub fn rows(report: &mut Report, sizes: &Sizes) {
    for model in [&sizes.llama, &sizes.gpt2] {
        report.table(&format!("matmuls of {}, bf16", model.name));
        let (tokens, keys) = (model.tokens(), model.kv_heads * model.head_dim());
        let Model { hidden, ffn, vocab, chunk_tokens, heads, kv_heads, .. } = *model;
        layer(report, "q, o", tokens, hidden, hidden);
        if kv_heads != heads {
            layer(report, "k, v", tokens, hidden, keys);
        }
        layer(report, "up", tokens, hidden, ffn);
        layer(report, "down", tokens, ffn, hidden);
        layer(report, "head", tokens, hidden, vocab);
        layer(report, "chunk of the head", chunk_tokens, hidden, vocab);
    }
}

/// The four matmuls of a weight `[inner, outer]`.
fn layer(report: &mut Report, name: &str, tokens: usize, inner: usize, outer: usize) {
    let x = report.random(DType::Bf16, tokens * inner);
    let weight = report.random(DType::Bf16, inner * outer);
    let dy = report.random(DType::Bf16, tokens * outer);
    let work = Work::Flops(2.0 * (tokens * inner * outer) as f64);
    let name = |what: &str| format!("{name} ({tokens} x {inner} x {outer}): {what}");

    let forward = plain(tokens, outer, inner);
    let mut y = report.alloc(DType::Bf16, tokens * outer);
    report.row(&name("forward"), work, |backend| {
        backend.gemm(&forward, x.view(), weight.view(), y.view_mut());
    });
    drop(y);
    let to_input = Gemm { trans_b: true, ..plain(tokens, inner, outer) };
    let mut dx = report.alloc(DType::Bf16, tokens * inner);
    report.row(&name("input gradient"), work, |backend| {
        backend.gemm(&to_input, dy.view(), weight.view(), dx.view_mut());
    });
    drop(dx);
    let mut dweight = report.random(DType::F32, inner * outer);
    for (what, accumulate) in
        [("weight gradient in f32", false), ("weight gradient in f32, accumulated", true)]
    {
        let to_weight = Gemm { trans_a: true, accumulate, ..plain(inner, outer, tokens) };
        report.row(&name(what), work, |backend| {
            backend.gemm(&to_weight, x.view(), dy.view(), dweight.view_mut());
        });
    }
}

/// Returns a matmul without transposed inputs.
pub fn plain(m: usize, n: usize, k: usize) -> Gemm {
    Gemm { m, n, k, trans_a: false, trans_b: false, accumulate: false }
}
