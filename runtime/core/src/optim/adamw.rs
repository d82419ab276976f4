//! AdamW: one fused kernel for consecutive slices.

use meshwright_backend::ops::optim::AdamwArgs;
use meshwright_backend::{AdamGroup, AdamStep};

use super::ranges::{check_fraction, check_nonnegative};
use super::slice_buffers::SliceOperands;
use super::{FlatSlice, FlatSlices, Group, Optimizer, UpdateRule, Updated};

/// The kinds of state of each parameter: first and second moment.
pub(super) const KINDS: [&str; 2] = ["adam_m", "adam_v"];

/// Hyperparameters of [`AdamW`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamWOptions {
    /// Decay rates of the two moments.
    pub betas: (f64, f64),
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay, for the [groups](super::ParamGroups) that have it.
    pub weight_decay: f64,
}

impl Default for AdamWOptions {
    /// Betas 0.9 and 0.95, eps 1e-8, weight decay 0.1.
    fn default() -> Self {
        AdamWOptions { betas: (0.9, 0.95), eps: 1e-8, weight_decay: 0.1 }
    }
}

/// Adam with decoupled weight decay (Loshchilov and Hutter, 2019), as PyTorch computes it.
pub type AdamW = Optimizer<AdamWOptions>;

impl UpdateRule for AdamWOptions {
    fn name(&self) -> &str {
        "adamw"
    }

    fn state_kinds(&self, _: Group) -> &'static [&'static str] {
        &KINDS
    }

    fn update(&self, slice: FlatSlice<'_>) -> Updated {
        self.update_all(slice.into())
    }

    /// One kernel for all slices: a transformer block has many small parameters that alternate between groups.
    fn update_all(&self, slices: FlatSlices<'_>) -> Updated {
        let step = slices.step();
        let number = step.number() as f64;
        let (beta1, beta2) = self.betas;
        let groups = slices.groups().into_iter().map(|(group, len)| AdamGroup {
            len,
            lr: step.lr_of(group) as f32,
            weight_decay: group.weight_decay(self.weight_decay) as f32,
        });
        let groups: Vec<AdamGroup> = groups.collect();
        let kernel = AdamStep {
            beta1,
            beta2,
            eps: self.eps as f32,
            bias_correction1: (1.0 - beta1.powf(number)) as f32,
            bias_correction2: (1.0 - beta2.powf(number)) as f32,
            grad_scale: step.grad_scale(),
        };
        slices.update_fused(KINDS, |operands| {
            let SliceOperands { params: p, gradient: g, states: [m, v], rounding, copy } = operands;
            let args = AdamwArgs { p, g, m, v, copy, rounding };
            step.rank().backend().adamw(&kernel, &groups, args);
        })
    }

    fn check(&self) -> Result<(), String> {
        let AdamWOptions { betas, eps, weight_decay } = *self;
        check_fraction("the first beta", betas.0)?;
        check_fraction("the second beta", betas.1)?;
        check_nonnegative("eps", eps)?;
        check_nonnegative("weight_decay", weight_decay)
    }

    fn options(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }
}
