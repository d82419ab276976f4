//! Muon: momentum of matrices, orthogonalized.

mod exchange;
mod exchanged_matrix;
mod matrix;
mod newton_schulz;

use std::rc::Rc;

use crate::tensor::{Rank, Unit};

use super::ranges::check_fraction;
use super::rule::ModelUpdate;
use super::{
    AdamWOptions, FlatSlice, FlatSlices, Group, Optimizer, OptimizerStep, ParamGroups, UnitState,
    UpdateRule, Updated, adamw,
};

use exchange::MatrixExchange;

pub use newton_schulz::orthogonalize;

/// The kind of state of a matrix.
const KINDS: [&str; 1] = ["muon_momentum"];

/// Hyperparameters of [`Muon`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MuonOptions {
    /// Decay rate of the sum of a matrix's gradients.
    pub momentum: f64,
    /// Options for everything that is not a matrix, and the weight decay of both.
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
/// `p = (1 - lr * decay) * p - lr * 0.2 * sqrt(max(rows, cols)) * orthogonalize(g + momentum * m)`.
///
/// The factor gives the update the root mean square that AdamW's typically has, so that learning rate and weight decay
/// of AdamW carry over (Liu et al., "Muon is scalable for LLM training", 2025, arXiv 2502.16982, section 2.2).
///
/// The momentum is sharded as the unit is. [`orthogonalize`] needs a complete matrix: the matrices are distributed over
/// the ranks of the mesh, largest first. Each rank gathers the shards of its own matrices and sends the result back,
/// overlapped with the exchange of the next ones. So every matrix is orthogonalized once, however many ranks hold it;
/// in the compute dtype.
pub type Muon = Optimizer<MuonOptions>;

impl UpdateRule for MuonOptions {
    fn name(&self) -> &str {
        "muon"
    }

    fn state_kinds(&self, group: Group) -> &'static [&'static str] {
        if group.matrix { &KINDS } else { &adamw::KINDS }
    }

    /// Updates parameters that are not matrices.
    fn update(&self, slice: FlatSlice<'_>) -> Updated {
        self.adamw.update(slice)
    }

    fn update_all(&self, slices: FlatSlices<'_>) -> Updated {
        self.adamw.update_all(slices)
    }

    fn check(&self) -> Result<(), String> {
        check_fraction("momentum", self.momentum)?;
        self.adamw.check()
    }

    fn options(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }

    fn model_update(
        &self,
        rank: &Rank,
        units: &[Rc<Unit>],
        groups: &ParamGroups,
    ) -> Option<Box<dyn ModelUpdate>> {
        let exchange = MatrixExchange::new(rank, units, groups);
        Some(Box::new(MatrixUpdate { options: *self, exchange }))
    }
}

/// The update of all matrices.
struct MatrixUpdate {
    options: MuonOptions,
    exchange: MatrixExchange,
}

impl ModelUpdate for MatrixUpdate {
    fn takes(&self, group: Group) -> bool {
        group.matrix
    }

    fn update(&mut self, step: &OptimizerStep<'_>, states: &mut [UnitState]) {
        self.exchange.update_matrices(step, states, &self.options);
    }

    fn work_on(&self, world_rank: usize) -> [usize; 2] {
        self.exchange.work_on(world_rank)
    }
}
