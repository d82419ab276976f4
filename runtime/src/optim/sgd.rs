//! Stochastic gradient descent with momentum, one fused pass over each unit.

use std::rc::Rc;

use crate::backend::{SgdArgs, SgdStep};
use crate::tensor::{Applicable, Gradients, Rank, Summed, Unit};

use super::state::Run;
use super::{Group, ParamGroups, UnitState};

/// The kind of state that each parameter has.
const KINDS: [&str; 1] = ["sgd_momentum"];

/// The constants of [`Sgd`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SgdOptions {
    /// Decay of the sum of gradients; with 0 there is no such sum, and no state.
    pub momentum: f64,
    /// Whether to look ahead along the momentum.
    pub nesterov: bool,
    /// Decoupled decay, on the [groups](ParamGroups) that have it.
    pub weight_decay: f64,
}

impl Default for SgdOptions {
    /// Momentum 0.9 without looking ahead, no weight decay.
    fn default() -> Self {
        SgdOptions { momentum: 0.9, nesterov: false, weight_decay: 0.0 }
    }
}

impl SgdOptions {
    pub(super) fn kinds(&self) -> &'static [&'static str] {
        if self.momentum == 0.0 { &[] } else { &KINDS }
    }
}

/// Stochastic gradient descent with the momentum of PyTorch, `m = momentum * m + g`, and weight decay apart from it, as
/// in SGDW (Loshchilov and Hutter, 2019): `p = (1 - lr * decay) * p - lr * m`.
///
/// PyTorch adds its weight decay to the gradient instead, so that it goes through the momentum.
pub struct Sgd {
    options: SgdOptions,
    states: Vec<UnitState>,
    step: u64,
}

optimizer!(Sgd, SgdOptions, "momentum", "The momentum, `sgd_momentum`");

impl Sgd {
    fn of_groups(
        rank: &Rank,
        units: &[Rc<Unit>],
        options: SgdOptions,
        groups: &ParamGroups,
    ) -> Sgd {
        let state = |unit| UnitState::new(rank, unit, groups, |_| options.kinds());
        Sgd { options, states: units.iter().map(state).collect(), step: 0 }
    }

    /// Updates all units, and hands each of them on.
    pub(super) fn update<State: Summed>(
        &mut self,
        lr: f64,
        gradients: &Gradients<State>,
        mut updated: impl FnMut(&Rc<Unit>),
    ) {
        self.step += 1;
        let SgdOptions { momentum, nesterov, weight_decay } = self.options;
        for state in &mut self.states {
            for Run { group, range, in_shard } in state.runs().iter() {
                let Group { lr_scale, decays, .. } = group;
                let step = SgdStep {
                    lr: (lr * lr_scale) as f32,
                    momentum: momentum as f32,
                    nesterov,
                    weight_decay: if *decays { weight_decay as f32 } else { 0.0 },
                    grad_scale: gradients.scale(),
                };
                let unit = Rc::clone(state.unit());
                let momentum = (momentum != 0.0).then(|| {
                    let [momentum] = state.views(KINDS, in_shard);
                    momentum
                });
                unit.update(range.clone(), |values, gradient, copy| {
                    gradients
                        .rank()
                        .backend()
                        .sgd(&step, SgdArgs { p: values, g: gradient, momentum, copy });
                });
            }
            updated(state.unit());
        }
    }
}
