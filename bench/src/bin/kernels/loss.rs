//! Cross-entropy and the embedding table.

use meshwright::backend::ops::loss::{CrossEntropyArgs, CrossEntropyGradArgs, ExpSumArgs};

use crate::report::{Report, Work};
use crate::{HIDDEN, Number, TOKENS, VOCAB, filled, view, view_mut};

/// Tokens whose logits exist at the same time.
const LOSS_CHUNK: usize = 256;

pub fn rows<T: Number>(report: &mut Report) {
    let len = LOSS_CHUNK * VOCAB;
    let moved = |operands: usize| Work::Bytes(operands * len * size_of::<T>());
    let calls = TOKENS / LOSS_CHUNK;
    let mut logits: Vec<T> = (0..len).map(|i| T::of((i % 97) as f32 / 97.0)).collect();
    let targets: Vec<u32> = (0..LOSS_CHUNK as u32).collect();
    let targets = view(&targets);
    let [mut max, mut sum, mut target] = [(); 3].map(|()| filled::<f32>(LOSS_CHUNK, 0.0));
    let scale = filled::<f32>(LOSS_CHUNK, 0.001);
    report.row("row_max", calls, moved(1), |cpu| {
        cpu.row_max(VOCAB, view(&logits), view_mut(&mut max));
    });
    report.row("exp_sum", calls, moved(1), |cpu| {
        let (sum, target) = (view_mut(&mut sum), view_mut(&mut target));
        cpu.exp_sum(ExpSumArgs {
            cols: VOCAB,
            logits: view(&logits),
            max: view(&max),
            targets,
            first_col: 0,
            sum_exp: sum,
            target_logit: target,
        });
    });
    report.row("cross_entropy_grad", calls, moved(2), |cpu| {
        let (max, sum) = (view(&max), view(&sum));
        cpu.cross_entropy_grad(CrossEntropyGradArgs {
            cols: VOCAB,
            logits: view_mut(&mut logits),
            max,
            sum_exp: sum,
            targets,
            first_col: 0,
            row_scale: view(&scale),
        });
    });
    report.row("cross_entropy", calls, moved(2), |cpu| {
        let (max, sum, target) = (view_mut(&mut max), view_mut(&mut sum), view_mut(&mut target));
        let (logits, scale) = (view_mut(&mut logits), view(&scale));
        cpu.cross_entropy(CrossEntropyArgs {
            cols: VOCAB,
            logits,
            targets,
            first_col: 0,
            row_scale: scale,
            max,
            sum_exp: sum,
            target_logit: target,
        });
    });

    let tokens: Vec<u32> = (0..TOKENS as u32).map(|i| i * 7919 % VOCAB as u32).collect();
    let tokens = view(&tokens);
    let (table, mut x) = (filled::<T>(VOCAB * HIDDEN, 0.5), filled::<T>(TOKENS * HIDDEN, 0.1));
    let mut dtable = filled::<f32>(VOCAB * HIDDEN, 0.0);
    let elements = TOKENS * HIDDEN;
    report.row("embedding", 1, Work::Bytes(2 * elements * size_of::<T>()), |cpu| {
        cpu.embedding(tokens, view(&table), 0, view_mut(&mut x));
    });
    let bytes = elements * (size_of::<T>() + 2 * size_of::<f32>());
    report.row("embedding_backward", 1, Work::Bytes(bytes), |cpu| {
        cpu.embedding_backward(tokens, None, 0, view(&x), view_mut(&mut dtable));
    });
}
