//! Embedding and cross-entropy.

use meshwright::backend::DType;
use meshwright::backend::ops::loss::{CrossEntropyArgs, CrossEntropyGradArgs, MaxExpSumArgs};

use super::report::{Report, Work};
use super::sizes::{Model, Sizes};

pub fn rows(report: &mut Report, sizes: &Sizes) {
    for model in [&sizes.llama, &sizes.gpt2] {
        report.table(&format!("embedding and loss of {}", model.name));
        embedding(report, model);
        cross_entropy(report, model, "", model.tokens(), &[DType::F32, DType::Bf16]);
        cross_entropy(report, model, ", chunk", model.chunk_tokens, &[DType::Bf16]);
    }
}

fn embedding(report: &mut Report, model: &Model) {
    let (tokens, hidden, vocab) = (model.tokens(), model.hidden, model.vocab);
    let uniform = report.uniform_tokens(tokens, vocab);
    let zipf = report.zipf_tokens(tokens, vocab);
    let table = report.random(DType::Bf16, vocab * hidden);
    let mut dtable = report.random(DType::F32, vocab * hidden);
    let mut out = report.random(DType::Bf16, tokens * hidden);
    for (name, ids) in [("uniform tokens", &uniform), ("Zipf tokens", &zipf)] {
        let bytes = Work::Bytes((10 * tokens * hidden) as f64);
        report.row(&format!("embedding, {name}: backward"), bytes, |backend| {
            backend.embedding_backward(ids.view(), None, 0, out.view(), dtable.view_mut());
        });
    }
    report.row("embedding: forward", Work::Bytes((4 * tokens * hidden) as f64), |backend| {
        backend.embedding(uniform.view(), table.view(), 0, out.view_mut());
    });
}

/// The kernels on the logits of `rows` tokens in each of `dtypes`; `part` ends the names of the rows.
fn cross_entropy(report: &mut Report, model: &Model, part: &str, rows: usize, dtypes: &[DType]) {
    let vocab = model.vocab;
    let targets = report.uniform_tokens(rows, vocab);
    let ones = report.random(DType::F32, rows);
    let [mut max, mut sum, mut logit] = [(); 3].map(|()| report.alloc(DType::F32, rows));
    for dtype in dtypes.iter().copied() {
        let moved = |times: usize| Work::Bytes((times * dtype.bytes() * rows * vocab) as f64);
        let mut logits = report.random(dtype, rows * vocab);
        report.row(&format!("max_exp_sum, {dtype}{part}"), moved(1), |backend| {
            let [max, sum, logit] = [&mut max, &mut sum, &mut logit].map(|x| x.view_mut());
            backend.max_exp_sum(MaxExpSumArgs {
                cols: vocab,
                logits: logits.view(),
                targets: targets.view(),
                first_col: 0,
                max,
                sum_exp: sum,
                target_logit: logit,
            });
        });
        report.row(&format!("cross_entropy_grad, {dtype}{part}"), moved(2), |backend| {
            let [max, sum, targets, ones] = [&max, &sum, &targets, &ones].map(|x| x.view());
            backend.cross_entropy_grad(CrossEntropyGradArgs {
                cols: vocab,
                logits: logits.view_mut(),
                max,
                sum_exp: sum,
                targets,
                first_col: 0,
                row_scale: ones,
            });
        });
        report.row(&format!("cross_entropy, {dtype}{part}"), moved(2), |backend| {
            let [max, sum, logit] = [&mut max, &mut sum, &mut logit].map(|x| x.view_mut());
            let (targets, ones) = (targets.view(), ones.view());
            backend.cross_entropy(CrossEntropyArgs {
                cols: vocab,
                logits: logits.view_mut(),
                targets,
                first_col: 0,
                row_scale: ones,
                max,
                sum_exp: sum,
                target_logit: logit,
            });
        });
    }
}
