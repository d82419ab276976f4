//! Options of language-model heads.

use meshwright_backend::ops::head::{FinishLogitsArgs, SmoothedGradArgs};

use crate::{FLOATS, Target, scaled, values};

/// Rows and columns.
const SIZES: [[usize; 2]; 6] = [[0, 5], [1, 1], [9, 7], [3, 64], [4, 1003], [5, 1032]];

/// Rows for several threads of a CPU.
const LARGE: [[usize; 2]; 1] = [[130, 200]];

/// First column of the shard of the vocabulary, and columns of all shards.
const FIRST: usize = 10;
const VOCAB: usize = 1100;

/// A bias and a soft cap follow the formula, each alone and together.
pub fn finished_logits(target: &Target) {
    for [rows, cols] in target.cases(&SIZES, &LARGE) {
        let bias = scaled(cols, 2, 3.0);
        for (has_bias, soft_cap) in [(true, None), (false, Some(5.0)), (true, Some(5.0))] {
            for dtype in FLOATS {
                let mut logits = target.floats(dtype, &scaled(rows * cols, 1, 20.0));
                let start = logits.wide();
                let on_target = target.put(&bias);
                target.backend().finish_logits(FinishLogitsArgs {
                    cols,
                    logits: logits.view_mut(),
                    bias: has_bias.then(|| on_target.view()),
                    soft_cap,
                });
                let finished = |(at, x): (usize, f64)| {
                    let x = if has_bias { x + f64::from(bias[at % cols]) } else { x };
                    soft_cap.map_or(x, |cap| {
                        let cap = f64::from(cap);
                        cap * (x / cap).tanh()
                    })
                };
                let expected: Vec<f64> = start.into_iter().enumerate().map(finished).collect();
                let what = format!("{rows} x {cols}, bias {has_bias}, soft cap {soft_cap:?}");
                target.check(&what, &logits, &expected, 1e-6);
            }
        }
    }
}

/// Gradients of a cross-entropy with options follow the formula.
pub fn smoothed_gradients(target: &Target) {
    for [rows, cols] in target.cases(&SIZES, &LARGE) {
        let targets: Vec<u32> = (0..rows as u32).map(|i| i * 31 % (cols as u32 + 20)).collect();
        let mut scale = values(rows, 5);
        if rows > 1 {
            scale[rows / 2] = 0.0;
        }
        let max = vec![8.0; rows];
        let sum_exp: Vec<f32> = values(rows, 6).into_iter().map(|x| 5.0 + x).collect();
        for (label_smoothing, z_loss, soft_cap) in
            [(0.0, 0.0, Some(9.0)), (0.2, 0.0, None), (0.0, 0.01, None), (0.1, 0.02, Some(9.0))]
        {
            for dtype in FLOATS {
                let mut logits = target.floats(dtype, &scaled(rows * cols, 1, 8.0));
                let start = logits.wide();
                let [max_of, sum_of, scale_of] =
                    [&max, &sum_exp, &scale].map(|numbers| target.put(numbers));
                target.backend().smoothed_grad(SmoothedGradArgs {
                    cols,
                    logits: logits.view_mut(),
                    max: max_of.view(),
                    sum_exp: sum_of.view(),
                    targets: target.put(&targets).view(),
                    first_col: FIRST,
                    row_scale: scale_of.view(),
                    vocab: VOCAB,
                    label_smoothing,
                    z_loss,
                    soft_cap,
                });
                let gradient = |(at, z): (usize, f64)| {
                    let (row, col) = (at / cols, at % cols);
                    let (max, sum) = (f64::from(max[row]), f64::from(sum_exp[row]));
                    let (smoothing, scale) = (f64::from(label_smoothing), f64::from(scale[row]));
                    let chosen = targets[row] as usize == FIRST + col;
                    let probability = (z - max).exp() / sum;
                    let gradient = probability * (1.0 + 2.0 * f64::from(z_loss) * (max + sum.ln()))
                        - if chosen { 1.0 - smoothing } else { 0.0 }
                        - smoothing / VOCAB as f64;
                    let slope = soft_cap.map_or(1.0, |cap| 1.0 - (z / f64::from(cap)).powi(2));
                    scale * gradient * slope
                };
                let expected: Vec<f64> = start.into_iter().enumerate().map(gradient).collect();
                let what = format!("{rows} x {cols}, {label_smoothing} {z_loss} {soft_cap:?}");
                target.check(&what, &logits, &expected, 2e-6);
            }
        }
    }
}
