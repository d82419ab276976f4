//! Optimizer steps over shards of parameters.

use crate::ops::state_rounding::StateRounding;
use crate::{DryRunBackend, UpdateExpr, UpdateOperands, View, ViewMut};

/// Optimizer kernels.
pub trait OptimizerOps {
    /// Applies one step of AdamW to consecutive `groups`, which together have the length of the operands; see
    /// [`AdamStep`].
    fn adamw(&self, step: &AdamStep, groups: &[AdamGroup], args: AdamwArgs);
    /// Applies one step of SGD; see [`SgdStep`].
    fn sgd(&self, step: &SgdStep, args: SgdArgs);
    /// Applies one step of a user-defined optimizer, elementwise.
    fn apply_update(&self, expr: &UpdateExpr, operands: UpdateOperands<'_>);
    /// Rounds `x`, f32 or bf16, to bf16 by the bits of state number `state`; see [`StateRounding`]. With `accumulate`,
    /// it is the sum of `out` and `x`, in f32, that is rounded.
    fn round_state(
        &self,
        state: usize,
        x: View,
        accumulate: bool,
        out: ViewMut,
        rounding: &[StateRounding],
    );
}

impl OptimizerOps for DryRunBackend {
    fn adamw(&self, _: &AdamStep, _: &[AdamGroup], _: AdamwArgs) {}
    fn sgd(&self, _: &SgdStep, _: SgdArgs) {}
    fn apply_update(&self, _: &UpdateExpr, _: UpdateOperands<'_>) {}
    fn round_state(&self, _: usize, _: View, _: bool, _: ViewMut, _: &[StateRounding]) {}
}

/// Operands of [`OptimizerOps::adamw`], equally long.
pub struct AdamwArgs<'a> {
    /// Master weights, f32, updated.
    pub p: ViewMut<'a>,
    /// Gradient, f32 or bf16.
    pub g: View<'a>,
    /// First moment, f32 or bf16, updated.
    pub m: ViewMut<'a>,
    /// Second moment, of the same dtype, updated.
    pub v: ViewMut<'a>,
    /// A copy of the new weights in the compute dtype, written.
    pub copy: Option<ViewMut<'a>>,
    /// Rounding of the moments, states 0 and 1, in the order of the elements; empty if they are f32.
    pub rounding: &'a [StateRounding],
}

/// Operands of [`OptimizerOps::sgd`], equally long.
pub struct SgdArgs<'a> {
    /// Master weights, f32, updated.
    pub p: ViewMut<'a>,
    /// Gradient, f32 or bf16.
    pub g: View<'a>,
    /// Momentum buffer, f32 or bf16, updated.
    pub momentum: Option<ViewMut<'a>>,
    /// A copy of the new weights in the compute dtype, written.
    pub copy: Option<ViewMut<'a>>,
    /// Rounding of the momentum, state 0, in the order of the elements; empty if it is f32.
    pub rounding: &'a [StateRounding],
}

/// One step of AdamW (Loshchilov and Hutter 2019) as PyTorch computes it, with the learning rate and weight decay of a
/// [group](AdamGroup).
///
/// With `g' = g * grad_scale`: `p *= 1 - lr * weight_decay`, `m = beta1 * m + (1 - beta1) * g'`,
/// `v = beta2 * v + (1 - beta2) * g'^2`, `p -= lr * (m / bias_correction1) / (sqrt(v / bias_correction2) + eps)`. New
/// moments are rounded when they are stored, after `p` was computed from them in f32.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamStep {
    /// Decay of the first moment. In f64, because a rounded `1 - beta1` has few digits if the decay is close to 1.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f32,
    /// `1 - beta1^t` at step `t`, counted from 1.
    pub bias_correction1: f32,
    /// `1 - beta2^t` at step `t`, counted from 1.
    pub bias_correction2: f32,
    /// Factor on the gradient: from clipping, and from the division by a token count.
    pub grad_scale: f32,
}

/// Consecutive parameters with one learning rate and weight decay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamGroup {
    /// Number of elements.
    pub len: usize,
    /// Learning rate.
    pub lr: f32,
    /// Decoupled weight decay.
    pub weight_decay: f32,
}

/// Returns the elements that have both one group and one rounding, in order.
pub fn groups_by_rounding(
    groups: &[AdamGroup],
    rounding: &[StateRounding],
) -> Vec<(AdamGroup, StateRounding)> {
    let mut found = Vec::new();
    let mut parts = rounding.iter().copied();
    let mut rest: Option<StateRounding> = None;
    for group in groups {
        let mut left = group.len;
        while left > 0 {
            let Some(part) = rest.take().or_else(|| parts.next()) else { return found };
            let len = part.len.min(left);
            if len > 0 {
                found.push((AdamGroup { len, ..*group }, part.part(0..len)));
            }
            rest = (len < part.len).then(|| part.part(len..part.len));
            left -= len;
        }
    }
    found
}

/// One step of stochastic gradient descent as PyTorch computes it, except for the weight decay.
///
/// With `g' = g * grad_scale`: `p *= 1 - lr * weight_decay`, `buf = momentum * buf + g'`, and `p -= lr * buf`, or
/// `p -= lr * (g' + momentum * buf)` with Nesterov's momentum (Sutskever et al. 2013). Without a momentum buffer
/// `p -= lr * g'`. The decay is decoupled as in [`AdamStep`]; PyTorch's SGD adds `weight_decay * p` to the gradient
/// instead, so that the decay enters the momentum as well.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SgdStep {
    /// Learning rate.
    pub lr: f32,
    /// Decay of the sum of gradients; not used without a momentum buffer.
    pub momentum: f32,
    /// Nesterov momentum; not used without a momentum buffer.
    pub nesterov: bool,
    /// Decoupled weight decay.
    pub weight_decay: f32,
    /// Factor on the gradient: from clipping, and from the division by a token count.
    pub grad_scale: f32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_divided_where_a_parameter_begins() {
        let group = |len| AdamGroup { len, lr: len as f32, weight_decay: 0.0 };
        let part = |key, len| StateRounding::contiguous(key, 0, len);
        let found = groups_by_rounding(&[group(5), group(0), group(4)], &[part(1, 2), part(2, 7)]);
        let found: Vec<_> = found.iter().map(|(g, r)| (g.len, g.lr, r.key, r.start)).collect();
        assert_eq!(found, [(2, 5.0, 1, 0), (3, 5.0, 2, 0), (4, 4.0, 2, 3)]);
    }
}
