//! Embedding and cross-entropy.

use meshwright::backend::DType;

use super::report::{Report, Work};
use super::{HIDDEN, TOKENS, VOCAB};

pub fn rows(report: &mut Report) {
    report.table("embedding and loss");
    let bytes = |moved: usize| Work::Bytes(moved as f64);
    let tokens = report.tokens(TOKENS, VOCAB);
    let table = report.random(DType::Bf16, VOCAB * HIDDEN);
    let mut dtable = report.random(DType::F32, VOCAB * HIDDEN);
    let mut out = report.random(DType::Bf16, TOKENS * HIDDEN);
    report.row("embedding: backward", bytes(10 * TOKENS * HIDDEN), |backend| {
        backend.embedding_backward(tokens.view(), 0, out.view(), dtable.view_mut());
    });
    report.row("embedding: forward", bytes(4 * TOKENS * HIDDEN), |backend| {
        backend.embedding(tokens.view(), table.view(), 0, out.view_mut());
    });

    let rows = (1 << 27) / VOCAB;
    let targets = report.tokens(rows, VOCAB);
    let ones = report.random(DType::F32, rows);
    let [mut max, mut sum, mut logit] = [(); 3].map(|()| report.room(DType::F32, rows));
    for dtype in [DType::F32, DType::Bf16] {
        let moved = |accesses: usize| bytes(accesses * dtype.bytes() * rows * VOCAB);
        let mut logits = report.random(dtype, rows * VOCAB);
        report.row(&format!("row_max, {dtype}"), moved(1), |backend| {
            backend.row_max(VOCAB, logits.view(), max.view_mut());
        });
        report.row(&format!("exp_sum, {dtype}"), moved(1), |backend| {
            let [sum, logit] = [&mut sum, &mut logit].map(|x| x.view_mut());
            backend.exp_sum(VOCAB, logits.view(), max.view(), targets.view(), 0, sum, logit);
        });
        report.row(&format!("cross_entropy_grad, {dtype}"), moved(2), |backend| {
            let [max, sum, targets, ones] = [&max, &sum, &targets, &ones].map(|x| x.view());
            backend.cross_entropy_grad(VOCAB, logits.view_mut(), max, sum, targets, 0, ones);
        });
        report.row(&format!("cross_entropy, {dtype}"), moved(2), |backend| {
            let [max, sum, logit] = [&mut max, &mut sum, &mut logit].map(|x| x.view_mut());
            let (targets, ones) = (targets.view(), ones.view());
            backend.cross_entropy(VOCAB, logits.view_mut(), targets, 0, ones, max, sum, logit);
        });
    }
}
