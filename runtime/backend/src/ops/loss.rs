//! Cross-entropy, in pieces for a vocabulary that is split over ranks.
//!
//! A rank has the columns `first_col..first_col + cols` of the logits. Statistics of rows are f32 `[rows]`, targets are
//! u32 `[rows]`.

use crate::{DryRunBackend, View, ViewMut};

/// Cross-entropy kernels.
pub trait LossOps {
    /// Writes the largest element (f32) of each row of `cols` elements; a NaN in the row gives NaN.
    fn row_max(&self, cols: usize, x: View, max: ViewMut);
    /// Computes the sum of exponentials relative to a given maximum, and the logit of the target, of each row.
    fn exp_sum(&self, args: ExpSumArgs);
    /// Computes [`row_max`](Self::row_max), and [`exp_sum`](Self::exp_sum) relative to that maximum.
    ///
    /// Ranks that share a vocabulary take the largest `max`, multiply their sums by the exponential of the difference
    /// of their own to it, and add them.
    fn max_exp_sum(&self, args: MaxExpSumArgs);
    /// Computes `sum = sum(max + ln(sum_exp) - target_logit)` over the rows whose target is not `u32::MAX`, added in
    /// f64: the cross-entropy of all rows together.
    fn cross_entropy_loss(&self, args: CrossEntropyLossArgs);
    /// Replaces `logits` by `(exp(logit - max) / sum_exp - [column is the target]) * row_scale`. A `row_scale` of 0
    /// gives zeros whatever the logits are.
    fn cross_entropy_grad(&self, args: CrossEntropyGradArgs);
    /// Computes [`max_exp_sum`](Self::max_exp_sum) and [`cross_entropy_grad`](Self::cross_entropy_grad) with these
    /// statistics: for a rank that has all columns of the vocabulary.
    fn cross_entropy(&self, args: CrossEntropyArgs);
}

impl LossOps for DryRunBackend {
    fn row_max(&self, _: usize, _: View, _: ViewMut) {}
    fn exp_sum(&self, _: ExpSumArgs) {}
    fn max_exp_sum(&self, _: MaxExpSumArgs) {}
    fn cross_entropy_loss(&self, _: CrossEntropyLossArgs) {}
    fn cross_entropy_grad(&self, _: CrossEntropyGradArgs) {}
    fn cross_entropy(&self, _: CrossEntropyArgs) {}
}

/// Operands of [`LossOps::exp_sum`].
pub struct ExpSumArgs<'a> {
    /// Columns of this rank.
    pub cols: usize,
    /// Logits, `[rows, cols]`.
    pub logits: View<'a>,
    /// Maximum of each row over the whole vocabulary.
    pub max: View<'a>,
    /// Column of the whole vocabulary that is the target of each row.
    pub targets: View<'a>,
    /// Position of the first column in the whole vocabulary.
    pub first_col: usize,
    /// `sum(exp(logit - max))` of each row, written.
    pub sum_exp: ViewMut<'a>,
    /// Logit of the target if it is in the columns of this rank, else 0, written.
    pub target_logit: ViewMut<'a>,
}

/// Operands of [`LossOps::max_exp_sum`].
pub struct MaxExpSumArgs<'a> {
    /// Columns of this rank.
    pub cols: usize,
    /// Logits, `[rows, cols]`.
    pub logits: View<'a>,
    /// Column of the whole vocabulary that is the target of each row.
    pub targets: View<'a>,
    /// Position of the first column in the whole vocabulary.
    pub first_col: usize,
    /// Maximum of each row over the columns of this rank, written.
    pub max: ViewMut<'a>,
    /// The result, as in [`ExpSumArgs`].
    pub sum_exp: ViewMut<'a>,
    /// The result, as in [`ExpSumArgs`].
    pub target_logit: ViewMut<'a>,
}

/// Operands of [`LossOps::cross_entropy_loss`].
pub struct CrossEntropyLossArgs<'a> {
    /// Maximum of each row.
    pub max: View<'a>,
    /// Sum of exponentials of each row.
    pub sum_exp: View<'a>,
    /// Logit of the target of each row.
    pub target_logit: View<'a>,
    /// Targets; a row with target `u32::MAX` is ignored.
    pub targets: View<'a>,
    /// The sum of the losses, f32 `[1]`, written.
    pub sum: ViewMut<'a>,
}

/// Operands of [`LossOps::cross_entropy_grad`].
pub struct CrossEntropyGradArgs<'a> {
    /// Columns of this rank.
    pub cols: usize,
    /// Logits `[rows, cols]`, replaced by their gradients.
    pub logits: ViewMut<'a>,
    /// Maximum of each row over the whole vocabulary.
    pub max: View<'a>,
    /// Sum of exponentials of each row over the whole vocabulary.
    pub sum_exp: View<'a>,
    /// Column of the whole vocabulary that is the target of each row.
    pub targets: View<'a>,
    /// Position of the first column in the whole vocabulary.
    pub first_col: usize,
    /// Factor on the gradient of each row.
    pub row_scale: View<'a>,
}

/// Operands of [`LossOps::cross_entropy`].
pub struct CrossEntropyArgs<'a> {
    /// Columns of this rank.
    pub cols: usize,
    /// Logits `[rows, cols]`, replaced by their gradients.
    pub logits: ViewMut<'a>,
    /// Column that is the target of each row.
    pub targets: View<'a>,
    /// Position of the first column in the vocabulary.
    pub first_col: usize,
    /// Factor on the gradient of each row.
    pub row_scale: View<'a>,
    /// Maximum of each row, written.
    pub max: ViewMut<'a>,
    /// Sum of exponentials of each row, written.
    pub sum_exp: ViewMut<'a>,
    /// Logit of the target of each row, written.
    pub target_logit: ViewMut<'a>,
}
