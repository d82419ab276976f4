//! Stochastic gradient descent with momentum: one fused kernel per flat slice.

use std::collections::BTreeSet;

use meshwright_backend::SgdStep;
use meshwright_backend::ops::optim::SgdArgs;

use super::ranges::{check_fraction, check_nonnegative};
use super::slice_buffers::SliceOperands;
use super::{FlatSlice, Group, Optimizer, UpdateRule, Updated};

/// The kind of state of each parameter, unless the momentum is 0.
const KINDS: [&str; 1] = ["sgd_momentum"];

/// Hyperparameters of [`Sgd`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SgdOptions {
    /// Decay rate of the sum of gradients; with 0 there is no such sum, and no state.
    pub momentum: f64,
    /// Nesterov momentum.
    pub nesterov: bool,
    /// Decoupled weight decay, for the [groups](super::ParamGroups) that have it.
    pub weight_decay: f64,
}

impl Default for SgdOptions {
    /// Momentum 0.9 without Nesterov's look-ahead, no weight decay.
    fn default() -> Self {
        SgdOptions { momentum: 0.9, nesterov: false, weight_decay: 0.0 }
    }
}

/// Stochastic gradient descent with the momentum of PyTorch, `m = momentum * m + g`, and decoupled weight decay, as in
/// SGDW (Loshchilov and Hutter, 2019): `p = (1 - lr * decay) * p - lr * m`.
///
/// PyTorch adds its weight decay to the gradient instead, so that it goes through the momentum.
pub type Sgd = Optimizer<SgdOptions>;

impl UpdateRule for SgdOptions {
    fn name(&self) -> &str {
        "sgd"
    }

    fn state_kinds(&self, _: Group) -> &'static [&'static str] {
        if self.momentum == 0.0 { &[] } else { &KINDS }
    }

    fn update(&self, slice: FlatSlice<'_>) -> Updated {
        let step = slice.step();
        let kernel = SgdStep {
            lr: slice.lr() as f32,
            momentum: self.momentum as f32,
            nesterov: self.nesterov,
            weight_decay: slice.weight_decay(self.weight_decay) as f32,
            grad_scale: step.grad_scale(),
        };
        let backend = step.rank().backend();
        if self.momentum == 0.0 {
            slice.update_fused([], |operands| {
                let SliceOperands { params: p, gradient: g, rounding, copy, .. } = operands;
                backend.sgd(&kernel, SgdArgs { p, g, momentum: None, copy, rounding });
            })
        } else {
            slice.update_fused(KINDS, |operands| {
                let SliceOperands { params: p, gradient: g, states, rounding, copy } = operands;
                let momentum = states.into_iter().next();
                backend.sgd(&kernel, SgdArgs { p, g, momentum, copy, rounding });
            })
        }
    }

    fn check(&self) -> Result<(), String> {
        check_fraction("momentum", self.momentum)?;
        check_nonnegative("weight_decay", self.weight_decay)
    }

    fn options(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }

    fn describe(&self) -> String {
        let momentum = if self.momentum == 0.0 { "without" } else { "with" };
        format!("sgd {momentum} momentum")
    }

    fn settings_for_state(&self, saved: &BTreeSet<&str>) -> Option<&'static str> {
        Some(if saved.is_empty() { "with --momentum 0" } else { "with --momentum above 0" })
    }
}
