//! AdamW, one fused pass over each unit.

use std::rc::Rc;

use crate::backend::{AdamStep, AdamwArgs};
use crate::tensor::{Applicable, Gradients, Rank, Summed, Unit};

use super::state::Run;
use super::{Group, ParamGroups, UnitState};

/// The kinds of state that each parameter has.
pub(super) const KINDS: [&str; 2] = ["adam_m", "adam_v"];

/// The constants of [`AdamW`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamWOptions {
    /// Decay rates of the two moments.
    pub betas: (f64, f64),
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled decay, on the [groups](ParamGroups) that have it.
    pub weight_decay: f64,
}

impl Default for AdamWOptions {
    /// Betas 0.9 and 0.95, eps 1e-8, weight decay 0.1.
    fn default() -> Self {
        AdamWOptions { betas: (0.9, 0.95), eps: 1e-8, weight_decay: 0.1 }
    }
}

/// Adam with decoupled weight decay (Loshchilov and Hutter, 2019), as PyTorch computes it.
pub struct AdamW {
    options: AdamWOptions,
    states: Vec<UnitState>,
    step: u64,
}

optimizer!(AdamW, AdamWOptions, "moments", "The moments, `adam_m` and `adam_v`");

impl AdamW {
    fn of_groups(
        rank: &Rank,
        units: &[Rc<Unit>],
        options: AdamWOptions,
        groups: &ParamGroups,
    ) -> AdamW {
        let state = |unit| UnitState::new(rank, unit, groups, |_| &KINDS);
        AdamW { options, states: units.iter().map(state).collect(), step: 0 }
    }

    /// Updates all units, and hands each of them on.
    pub(super) fn update<State: Summed>(
        &mut self,
        lr: f64,
        gradients: &Gradients<State>,
        mut updated: impl FnMut(&Rc<Unit>),
    ) {
        self.step += 1;
        let step = Step::new(&self.options, lr, self.step, gradients.scale());
        for state in &mut self.states {
            for run in state.runs().iter() {
                step.apply(gradients.rank(), state, run);
            }
            updated(state.unit());
        }
    }
}

/// What is the same for all parameters in one step of AdamW.
pub(super) struct Step {
    kernel: AdamStep,
    lr: f64,
    weight_decay: f64,
}

impl Step {
    /// Step `number`, from 1, on gradients that `grad_scale` is to be multiplied with.
    pub(super) fn new(options: &AdamWOptions, lr: f64, number: u64, grad_scale: f32) -> Step {
        let (beta1, beta2) = options.betas;
        let kernel = AdamStep {
            lr: lr as f32,
            beta1: beta1 as f32,
            beta2: beta2 as f32,
            eps: options.eps as f32,
            weight_decay: 0.0,
            bias_correction1: (1.0 - beta1.powf(number as f64)) as f32,
            bias_correction2: (1.0 - beta2.powf(number as f64)) as f32,
            grad_scale,
        };
        Step { kernel, lr, weight_decay: options.weight_decay }
    }

    /// Updates one run.
    pub(super) fn apply(&self, rank: &Rank, state: &mut UnitState, run: &Run) {
        let Group { lr_scale, decays, .. } = run.group;
        let step = AdamStep {
            lr: (self.lr * lr_scale) as f32,
            weight_decay: if decays { self.weight_decay as f32 } else { 0.0 },
            ..self.kernel
        };
        let unit = Rc::clone(state.unit());
        let [first, second] = state.views(KINDS, &run.in_shard);
        unit.update(run.range.clone(), |values, gradient, copy| {
            rank.backend()
                .adamw(&step, AdamwArgs { p: values, g: gradient, m: first, v: second, copy });
        });
    }
}
