//! Muon: the momentum of a matrix, orthogonalised.

mod exchange;
mod matrix;
mod newton_schulz;

use std::rc::Rc;

use crate::tensor::{Applicable, Gradients, Rank, Summed, Unit};

use super::{AdamWOptions, Group, ParamGroups, UnitState, adamw};

use exchange::Exchange;

pub use newton_schulz::orthogonalise;

/// The kind of state that a matrix has.
const KINDS: [&str; 1] = ["muon_momentum"];

pub(super) fn kinds(group: Group) -> &'static [&'static str] {
    if group.matrix { &KINDS } else { &adamw::KINDS }
}

/// The constants of [`Muon`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MuonOptions {
    /// Decay of the sum of a matrix's gradients.
    pub momentum: f64,
    /// For everything that is no matrix; and the weight decay of both.
    pub adamw: AdamWOptions,
}

impl Default for MuonOptions {
    /// Momentum 0.95.
    fn default() -> Self {
        MuonOptions { momentum: 0.95, adamw: AdamWOptions::default() }
    }
}

/// Muon (Jordan et al., 2024, <https://kellerjordan.github.io/posts/muon>) for [matrices](Group::matrix), AdamW for
/// everything else.
///
/// With `m = momentum * m + g`, a matrix of `rows x cols` (the product of the dims it reads, and of those it writes)
/// becomes
///
/// `p = (1 - lr * decay) * p - lr * 0.2 * sqrt(max(rows, cols)) * orthogonalise(g + momentum * m)`.
///
/// The factor gives the update the root mean square that AdamW's typically has, so that learning rate and weight decay
/// of AdamW carry over (Liu et al., "Muon is scalable for LLM training", 2025, arXiv 2502.16982, section 2.2).
///
/// The momentum is sharded as the unit is. [`orthogonalise`] needs all of a matrix: the ranks of the mesh share the
/// matrices out, largest first, and each gathers the parts of its own from the ranks that hold them and sends the result
/// back, while the next ones are on their way. So every matrix is orthogonalised once, however many ranks hold it; in
/// the compute dtype.
pub struct Muon {
    options: MuonOptions,
    states: Vec<UnitState>,
    exchange: Exchange,
    step: u64,
}

optimizer!(
    Muon,
    MuonOptions,
    "moments and momentum",
    "Momentum and moments, `muon_momentum` of matrices, `adam_m` and `adam_v` of the rest"
);

impl Muon {
    fn of_groups(
        rank: &Rank,
        units: &[Rc<Unit>],
        options: MuonOptions,
        groups: &ParamGroups,
    ) -> Muon {
        let state = |unit| UnitState::new(rank, unit, groups, kinds);
        let exchange = Exchange::new(rank, units, groups);
        Muon { options, states: units.iter().map(state).collect(), exchange, step: 0 }
    }

    /// Updates all units, and hands each of them on.
    pub(in crate::optim) fn update<State: Summed>(
        &mut self,
        lr: f64,
        gradients: &Gradients<State>,
        mut updated: impl FnMut(&Rc<Unit>),
    ) {
        self.step += 1;
        let (rank, scale) = (gradients.rank(), gradients.scale());
        self.exchange.update(rank, &mut self.states, &self.options, lr, scale);
        let step = adamw::Step::new(&self.options.adamw, lr, self.step, scale);
        for state in &mut self.states {
            for run in state.runs().iter().filter(|run| !run.group.matrix) {
                step.apply(rank, state, run);
            }
            updated(state.unit());
        }
    }
}
