//! Matrices of a model that ranks exchange: their shards, and the update of that of this rank.

use crate::tensor::ParamRef;
use meshwright_backend::ops::optim::SgdArgs;
use meshwright_backend::{SgdStep, View, ViewMut};
use meshwright_comm::Site;

use super::super::{Group, OptimizerStep, UnitState};
use super::matrix::MatrixShard;
use super::{KINDS, MuonOptions};

/// Typical root mean square of the elements of AdamW's updates.
const RMS: f64 = 0.2;

/// A matrix whose shards are gathered by its owner.
pub struct ExchangedMatrix {
    pub param: ParamRef,
    /// Index of its unit.
    pub unit: usize,
    pub group: Group,
    /// The shard of each member.
    pub shards: Vec<MatrixShard>,
    pub gather: Site,
    pub scatter: Site,
}

impl ExchangedMatrix {
    pub fn shard_of(&self, member: usize) -> &MatrixShard {
        &self.shards[member]
    }

    pub fn rows(&self) -> usize {
        self.shards[0].block.matrix_rows()
    }

    pub fn cols(&self) -> usize {
        self.shards[0].block.matrix_cols()
    }

    /// Returns the factor on its orthogonalized momentum.
    fn update_scale(&self) -> f64 {
        RMS * (self.rows().max(self.cols()) as f64).sqrt()
    }

    /// Computes `m = momentum * m + g`, and `direction = g + momentum * m`, of this rank's shard.
    pub fn advance_momentum(
        &self,
        step: &OptimizerStep<'_>,
        state: &mut UnitState,
        options: &MuonOptions,
        mut direction: ViewMut<'_>,
    ) {
        let backend = step.rank().backend();
        let owned = self.param.owned_in_shard();
        if owned.is_empty() {
            return;
        }
        let (start, own) = (self.param.range().start, self.param.owned());
        let range = start + own.start..start + own.end;
        let rounding = step.state_rounding(self.param.unit(), &range);
        let [momentum] = state.state_views(KINDS, &owned);
        // A Nesterov step with learning rate -1 from zero is the direction.
        let kernel = SgdStep {
            lr: -1.0,
            momentum: options.momentum as f32,
            nesterov: true,
            weight_decay: 0.0,
            grad_scale: step.grad_scale(),
        };
        backend.fill(direction.reborrow(), 0.0);
        let gradient = self.param.owned_gradient();
        let (g, momentum) = (gradient.view(), Some(momentum));
        let args = SgdArgs { p: direction, g, momentum, copy: None, rounding: &rounding };
        backend.sgd(&kernel, args);
    }

    /// Moves this rank's shard of a matrix against `direction`.
    pub fn apply_direction(
        &self,
        step: &OptimizerStep<'_>,
        state: &mut UnitState,
        options: &MuonOptions,
        direction: View<'_>,
    ) {
        let Some(slice) = state.param_slice(step, &self.param, self.group) else { return };
        let decay = slice.weight_decay(options.adamw.weight_decay);
        let kernel = SgdStep {
            lr: (slice.lr() * self.update_scale()) as f32,
            momentum: 0.0,
            nesterov: false,
            // The learning rate of the decay is without the factor of the direction.
            weight_decay: (decay / self.update_scale()) as f32,
            grad_scale: 1.0,
        };
        slice.change_params(|params, copy| {
            let args = SgdArgs { p: params, g: direction, momentum: None, copy, rounding: &[] };
            step.rank().backend().sgd(&kernel, args);
        });
    }
}
