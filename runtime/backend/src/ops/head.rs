//! Options of language-model heads: a bias and a soft cap of logits, and the gradient of a cross-entropy with label
//! smoothing and z-loss.

use crate::{DryRunBackend, View, ViewMut};

/// Kernels of the options of heads.
pub trait HeadOps {
    /// Replaces logits by `c tanh((logit + bias) / c)`, rounded once; by `logit + bias` without a soft cap `c`.
    fn finish_logits(&self, args: FinishLogitsArgs);
    /// Replaces finished logits `z` by their gradients: `(p (1 + 2 k lse) - (1 - e) [column is the target] - e / vocab)
    /// (1 - (z / c)^2) row_scale` with `lse = max + ln(sum_exp)` and `p = exp(z - max) / sum_exp`. A `row_scale` of 0
    /// gives zeros whatever the logits are.
    fn smoothed_grad(&self, args: SmoothedGradArgs);
}

impl HeadOps for DryRunBackend {
    fn finish_logits(&self, _: FinishLogitsArgs) {}
    fn smoothed_grad(&self, _: SmoothedGradArgs) {}
}

/// Operands of [`HeadOps::finish_logits`].
pub struct FinishLogitsArgs<'a> {
    /// Columns of this rank.
    pub cols: usize,
    /// Logits `[rows, cols]`, replaced.
    pub logits: ViewMut<'a>,
    /// A number for each column, f32.
    pub bias: Option<View<'a>>,
    /// Soft cap.
    pub soft_cap: Option<f32>,
}

/// Operands of [`HeadOps::smoothed_grad`].
pub struct SmoothedGradArgs<'a> {
    /// Columns of this rank.
    pub cols: usize,
    /// Finished logits `[rows, cols]`, replaced by their gradients.
    pub logits: ViewMut<'a>,
    /// Maximum of each row over the whole vocabulary, f32.
    pub max: View<'a>,
    /// Sum of exponentials of each row over the whole vocabulary, f32.
    pub sum_exp: View<'a>,
    /// Column of the whole vocabulary that is the target of each row.
    pub targets: View<'a>,
    /// Position of the first column in the whole vocabulary.
    pub first_col: usize,
    /// Factor on the gradient of each row, f32.
    pub row_scale: View<'a>,
    /// Columns of the whole vocabulary.
    pub vocab: usize,
    /// Label smoothing `e`.
    pub label_smoothing: f32,
    /// Factor `k` of the z-loss.
    pub z_loss: f32,
    /// Soft cap `c` of the logits.
    pub soft_cap: Option<f32>,
}
