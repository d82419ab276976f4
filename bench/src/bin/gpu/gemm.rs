//! Matrix products of layers, forward and backward.

use meshwright::backend::{DType, Gemm, GemmEnding};

use super::report::{Report, Work};
use super::{FFN, HEAD_DIM, HIDDEN, KV_HEADS, TOKENS, VOCAB};

pub fn rows(report: &mut Report) {
    report.table("products, bf16");
    let head_tokens = (1 << 27) / VOCAB;
    for (name, tokens, inner, outer) in [
        ("q, o", TOKENS, HIDDEN, HIDDEN),
        ("k, v", TOKENS, HIDDEN, KV_HEADS * HEAD_DIM),
        ("gate, up", TOKENS, HIDDEN, FFN),
        ("down", TOKENS, FFN, HIDDEN),
        ("head", head_tokens, HIDDEN, VOCAB),
    ] {
        let x = report.random(DType::Bf16, tokens * inner);
        let weight = report.random(DType::Bf16, inner * outer);
        let dy = report.random(DType::Bf16, tokens * outer);
        let work = Work::Flops { count: 2.0 * (tokens * inner * outer) as f64, wide: false };
        let plain = |m, n, k| Gemm { m, n, k, trans_a: false, trans_b: false, accumulate: false };

        let forward = plain(tokens, outer, inner);
        let mut y = report.room(DType::Bf16, tokens * outer);
        report.row(&format!("{name}: forward"), work, |backend| {
            backend.gemm(&forward, x.view(), weight.view(), y.view_mut());
        });
        drop(y);
        let to_input = Gemm { trans_b: true, ..plain(tokens, inner, outer) };
        let mut dx = report.room(DType::Bf16, tokens * inner);
        report.row(&format!("{name}: gradient of the input"), work, |backend| {
            backend.gemm(&to_input, dy.view(), weight.view(), dx.view_mut());
        });
        drop(dx);
        let to_weight = Gemm { trans_a: true, accumulate: true, ..plain(inner, outer, tokens) };
        let mut dweight = report.random(DType::F32, inner * outer);
        report.row(&format!("{name}: gradient of the weight, added in f32"), work, |backend| {
            backend.gemm(&to_weight, x.view(), dy.view(), dweight.view_mut());
        });
    }
    endings(report);
}

/// Products that do beside what otherwise takes a pass of its own over their result.
fn endings(report: &mut Report) {
    let (tokens, inner, outer) = (TOKENS, HIDDEN, FFN);
    let x = report.random(DType::Bf16, tokens * inner);
    let weight = report.random(DType::Bf16, inner * outer);
    let bias = report.random(DType::Bf16, outer);
    let dy = report.random(DType::Bf16, tokens * outer);
    let [mut y, mut inside] = [(); 2].map(|()| report.room(DType::Bf16, tokens * outer));
    let mut dweight = report.random(DType::F32, inner * outer);
    let mut sums = report.room(DType::F32, outer);
    let plain = |m, n, k| Gemm { m, n, k, trans_a: false, trans_b: false, accumulate: false };
    let forward = plain(tokens, outer, inner);
    let to_weight = Gemm { trans_a: true, accumulate: true, ..plain(inner, outer, tokens) };
    let work = Work::Flops { count: 2.0 * (tokens * inner * outer) as f64, wide: false };
    let mut all = true;
    report.row("up: forward with a bias", work, |backend| {
        let ending = GemmEnding::Bias(bias.view());
        all &= backend.gemm_with(&forward, x.view(), weight.view(), ending, y.view_mut());
    });
    report.row("up: forward with a bias and GELU, whose operand is kept", work, |backend| {
        let inside = Some(inside.view_mut());
        let ending = GemmEnding::BiasGelu { bias: bias.view(), inside };
        all &= backend.gemm_with(&forward, x.view(), weight.view(), ending, y.view_mut());
    });
    report.row("up: gradients of the weight, added in f32, and of a bias", work, |backend| {
        let ending = GemmEnding::Sums(sums.view_mut());
        all &= backend.gemm_with(&to_weight, x.view(), dy.view(), ending, dweight.view_mut());
    });
    if !all {
        println!(
            "\ncuBLASLt does not have all of the last three products: what it has not took no time."
        );
    }
}
