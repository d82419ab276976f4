//! Options of language-model heads.

use super::CpuBackend;
use super::float::{Float, by_float};
use super::math::{exp, tanh};
use super::simd::dispatch;
use super::softmax::row_count;
use super::workers::{Rows, Workers};
use meshwright_backend::HeadOps;
use meshwright_backend::ops::head::{FinishLogitsArgs, SmoothedGradArgs};

impl HeadOps for CpuBackend {
    fn finish_logits(&self, args: FinishLogitsArgs) {
        by_float!(args.logits.dtype() => T; finish_logits::<T>(&self.workers, args));
    }

    fn smoothed_grad(&self, args: SmoothedGradArgs) {
        by_float!(args.logits.dtype() => T; smoothed_grad::<T>(&self.workers, args));
    }
}

fn finish_logits<T: Float>(workers: &Workers, args: FinishLogitsArgs) {
    let FinishLogitsArgs { cols, mut logits, bias, soft_cap } = args;
    let logits = logits.typed::<T>();
    let bias: &[f32] = bias.map_or(&[], |bias| bias.typed());
    assert!(bias.is_empty() || bias.len() == cols, "finish_logits: a bias for each column");
    workers.rows(row_count(logits.len(), cols), cols, Rows(logits, cols), |_, logits| {
        for row in logits.0.chunks_exact_mut(cols) {
            if !bias.is_empty() {
                add_bias_and_cap(row, bias, soft_cap.unwrap_or(f32::INFINITY));
            } else if let Some(cap) = soft_cap {
                cap_row(row, cap);
            }
        }
    });
}

/// Returns `cap * tanh(x / cap)`; `x` if the cap is infinite.
#[inline(always)]
fn capped<const FMA: bool>(x: f32, cap: f32) -> f32 {
    if cap == f32::INFINITY { x } else { cap * tanh::<FMA>(x / cap) }
}

dispatch! {
    fn cap_row<const FMA: bool, T: Float>(row: &mut [T], cap: f32) {
        for logit in row {
            *logit = T::narrow_from_f32(capped::<FMA>(logit.widen_to_f32(), cap));
        }
    }
}

dispatch! {
    fn add_bias_and_cap<const FMA: bool, T: Float>(row: &mut [T], bias: &[f32], cap: f32) {
        for (logit, bias) in row.iter_mut().zip(bias) {
            *logit = T::narrow_from_f32(capped::<FMA>(logit.widen_to_f32() + bias, cap));
        }
    }
}

fn smoothed_grad<T: Float>(workers: &Workers, args: SmoothedGradArgs) {
    let SmoothedGradArgs { cols, mut logits, targets, first_col, .. } = args;
    let (logits, targets) = (logits.typed::<T>(), targets.typed::<u32>());
    let [max, sum_exp, row_scale] =
        [args.max, args.sum_exp, args.row_scale].map(|x| x.typed::<f32>());
    let rows = row_count(logits.len(), cols);
    let lens = [max.len(), sum_exp.len(), targets.len(), row_scale.len()];
    assert_eq!(lens, [rows; 4], "smoothed_grad: {rows} rows");
    let (smoothing, z_loss) = (args.label_smoothing, args.z_loss);
    let inverse_cap = args.soft_cap.map_or(0.0, |cap| 1.0 / cap);
    workers.rows(rows, cols, Rows(logits, cols), |range, logits| {
        for (row, logits) in range.zip(logits.0.chunks_exact_mut(cols)) {
            let scale = row_scale[row];
            if scale == 0.0 {
                logits.fill(T::ZERO);
                continue;
            }
            let log_sum = max[row] + sum_exp[row].ln();
            let gradient = RowGradient {
                max: max[row],
                factor: scale * (1.0 + 2.0 * z_loss * log_sum) / sum_exp[row],
                shift: scale * smoothing / args.vocab as f32,
                inverse_cap,
            };
            let col = (targets[row] as usize).checked_sub(first_col).filter(|col| *col < cols);
            let at_target = col.map(|col| {
                let shift = gradient.shift + scale * (1.0 - smoothing);
                let at_target = RowGradient { shift, ..gradient };
                (col, T::narrow_from_f32(gradient_of(logits[col], at_target)))
            });
            replace_row(logits, gradient);
            if let Some((col, gradient)) = at_target {
                logits[col] = gradient;
            }
        }
    });
}

/// The gradient of a row, but for its target: `(exp(z - max) * factor - shift) * (1 - (z * inverse_cap)^2)`.
#[derive(Clone, Copy)]
struct RowGradient {
    max: f32,
    factor: f32,
    shift: f32,
    inverse_cap: f32,
}

impl RowGradient {
    #[inline(always)]
    fn of<const FMA: bool>(self, z: f32) -> f32 {
        let capped = z * self.inverse_cap;
        (exp::<FMA>(z - self.max) * self.factor - self.shift) * (1.0 - capped * capped)
    }
}

dispatch! {
    fn replace_row<const FMA: bool, T: Float>(logits: &mut [T], gradient: RowGradient) {
        for logit in logits {
            *logit = T::narrow_from_f32(gradient.of::<FMA>(logit.widen_to_f32()));
        }
    }
}

dispatch! {
    fn gradient_of<const FMA: bool, T: Float>(logit: T, gradient: RowGradient) -> f32 {
        gradient.of::<FMA>(logit.widen_to_f32())
    }
}
