//! All-to-all exchange of matrix shards with the ranks that orthogonalize the matrices.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use crate::layout::{AxisId, AxisSet};
use crate::tensor::{Extent, ParamRef, Rank, Unit, fail};
use meshwright_backend::ops::optim::SgdArgs;
use meshwright_backend::{Buffer, Category, DType, SgdStep, View, ViewMut};
use meshwright_comm::{Blocks, Communicator, PendingCall, Site};

use super::super::{Group, OptimizerStep, ParamGroups, UnitState};
use super::matrix::{MatrixBlock, MatrixShard};
use super::{KINDS, MuonOptions, orthogonalize};

/// Typical root mean square of the elements of AdamW's updates.
const RMS: f64 = 0.2;

/// The matrices of the model, in rounds of one matrix per member of the group. The owner of a matrix gathers its shards
/// from the members of its replica, and sends every member that member's shard of the result.
pub struct MatrixExchange {
    /// The ranks that together hold the same model.
    group: Arc<Communicator>,
    matrices: Vec<ExchangedMatrix>,
}

struct ExchangedMatrix {
    param: ParamRef,
    /// Index of its unit.
    unit: usize,
    group: Group,
    /// The shard of each member.
    shards: Vec<MatrixShard>,
    gather: Site,
    scatter: Site,
}

impl ExchangedMatrix {
    fn shard_of(&self, member: usize) -> &MatrixShard {
        &self.shards[member]
    }

    fn rows(&self) -> usize {
        self.shards[0].block.matrix_rows()
    }

    fn cols(&self) -> usize {
        self.shards[0].block.matrix_cols()
    }

    /// Returns the factor on its orthogonalized momentum.
    fn update_scale(&self) -> f64 {
        RMS * (self.rows().max(self.cols()) as f64).sqrt()
    }
}

impl MatrixExchange {
    /// Distributes the matrices over the ranks. Every rank calls it.
    pub fn new(rank: &Rank, units: &[Rc<Unit>], groups: &ParamGroups) -> MatrixExchange {
        let group = rank.process_group(AxisSet::ALL.difference(AxisSet::of(AxisId::Pp)));
        let mut found: Vec<(usize, ParamRef, Group)> = Vec::new();
        for (unit, params) in units.iter().map(|unit| unit.params()).enumerate() {
            for param in params {
                let group = groups.of(&param);
                found.extend(group.matrix.then_some((unit, param, group)));
            }
        }
        // The matrices of a round are about the same amount of work.
        found.sort_by_key(|(_, param, _)| std::cmp::Reverse(param.global_len()));
        let runs = gather_runs(&group, found.iter().map(|(_, param, _)| param.owned()));
        let matrices = found
            .into_iter()
            .enumerate()
            .map(|(index, (unit, param, of))| {
                let members = group.members().iter().zip(&runs);
                let shard = |(world, runs): (&usize, &Vec<Range<usize>>)| {
                    matrix_shard(rank, *world, &param, runs[index].clone())
                };
                let shards = members.map(shard).collect();
                let [gather, scatter] = ["gathered", "orthogonalized"]
                    .map(|phase| Site::new(format!("{} ({phase})", param.path())));
                ExchangedMatrix { unit, param, group: of, shards, gather, scatter }
            })
            .collect();
        MatrixExchange { group, matrices }
    }

    /// Updates every matrix: a round is orthogonalized while the shards of the next one are gathered and the results of
    /// the previous one are scattered.
    pub fn update_matrices(
        &self,
        step: &OptimizerStep<'_>,
        states: &mut [UnitState],
        options: &MuonOptions,
    ) {
        let mut rounds = self.matrices.chunks(self.group.size());
        let Some(mut round) = rounds.next() else { return };
        let mut gathering = self.start_gather(step, states, options, round);
        let mut scattering = None;
        loop {
            let gathered = gathering.wait().unwrap_or_else(|error| fail(error));
            let next = rounds.next();
            let next = next.map(|next| (next, self.start_gather(step, states, options, next)));
            let own = self.own_matrix(round);
            let result = own.map(|own| self.orthogonalize_own(step.rank(), own, gathered));
            let pending = self.start_scatter(step.rank(), round, result);
            if let Some((round, pending)) = scattering.replace((round, pending)) {
                self.finish_round(step, states, options, round, pending);
            }
            match next {
                Some(next) => (round, gathering) = next,
                None => break,
            }
        }
        if let Some((round, pending)) = scattering {
            self.finish_round(step, states, options, round, pending);
        }
    }

    /// Returns the matrix of a round that this rank owns; `None` if the round has fewer matrices than ranks.
    fn own_matrix<'a>(&self, round: &'a [ExchangedMatrix]) -> Option<&'a ExchangedMatrix> {
        round.get(self.group.rank())
    }

    /// Adds the gradients to the momentum, and starts to send the update directions to the owners.
    fn start_gather(
        &self,
        step: &OptimizerStep<'_>,
        states: &mut [UnitState],
        options: &MuonOptions,
        round: &[ExchangedMatrix],
    ) -> PendingCall {
        let (me, members) = (self.group.rank(), self.group.size());
        let (mut send, mut recv) = (vec![0; members], vec![0; members]);
        for (owner, matrix) in round.iter().enumerate() {
            if matrix.shard_of(owner).replica == matrix.shard_of(me).replica {
                send[owner] = matrix.shard_of(me).run.len();
            }
        }
        if let Some(own) = self.own_matrix(round) {
            for (member, count) in recv.iter_mut().enumerate() {
                if own.shard_of(member).replica == own.shard_of(me).replica {
                    *count = own.shard_of(member).run.len();
                }
            }
        }
        let allocator = step.rank().allocator();
        let unsent = round.iter().zip(&send).filter(|(_, sent)| **sent == 0);
        let unsent = unsent.map(|(matrix, _)| matrix.shard_of(me).run.len()).max().unwrap_or(0);
        let mut scratch = allocator.alloc(DType::F32, unsent, Category::Workspace);
        let len = send.iter().sum();
        let mut sent = allocator.alloc(DType::F32, len, Category::Communication);
        let mut start = 0;
        for (matrix, count) in round.iter().zip(&send) {
            let direction = match *count {
                0 => scratch.view_mut().into_slice(0..matrix.shard_of(me).run.len()),
                count => sent.view_mut().into_slice(start..start + count),
            };
            advance_momentum(step, &mut states[matrix.unit], options, matrix, direction);
            start += count;
        }
        let arriving = allocator.alloc(DType::F32, recv.iter().sum(), Category::Communication);
        self.group.start_all_to_all(&round[0].gather, Arc::new(sent), arriving, &send, &recv)
    }

    /// Returns the orthogonalized matrix, from its gathered shards.
    fn orthogonalize_own(&self, rank: &Rank, own: &ExchangedMatrix, gathered: Buffer) -> Buffer {
        let backend = rank.backend();
        let (rows, cols) = (own.rows(), own.cols());
        let mut matrix = rank.alloc_scratch(DType::F32, rows * cols);
        let mut start = 0;
        for shard in &own.shards {
            if shard.replica == own.shard_of(self.group.rank()).replica {
                let end = start + shard.run.len();
                shard.copy_into(backend, gathered.view().slice(start..end), matrix.view_mut());
                start = end;
            }
        }
        drop(gathered);
        orthogonalize(backend, matrix, rows, cols, rank.compute_dtype())
    }

    /// Starts to send every member its shard of this rank's result.
    fn start_scatter(
        &self,
        rank: &Rank,
        round: &[ExchangedMatrix],
        result: Option<Buffer>,
    ) -> PendingCall {
        let (backend, allocator) = (rank.backend(), rank.allocator());
        let (me, members) = (self.group.rank(), self.group.size());
        let (mut send, mut recv) = (vec![0; members], vec![0; members]);
        for (owner, matrix) in round.iter().enumerate() {
            recv[owner] = matrix.shard_of(me).run.len();
        }
        if let Some(own) = self.own_matrix(round) {
            send = own.shards.iter().map(|shard| shard.run.len()).collect();
        }
        let len = send.iter().sum();
        let mut sent = allocator.alloc(DType::F32, len, Category::Communication);
        if let (Some(own), Some(result)) = (self.own_matrix(round), result) {
            let mut start = 0;
            for shard in &own.shards {
                let end = start + shard.run.len();
                shard.copy_from(backend, result.view(), sent.view_mut().into_slice(start..end));
                start = end;
            }
        }
        let arriving = allocator.alloc(DType::F32, recv.iter().sum(), Category::Communication);
        self.group.start_all_to_all(&round[0].scatter, Arc::new(sent), arriving, &send, &recv)
    }

    /// Waits for the results of a round and applies them.
    fn finish_round(
        &self,
        step: &OptimizerStep<'_>,
        states: &mut [UnitState],
        options: &MuonOptions,
        round: &[ExchangedMatrix],
        scattering: PendingCall,
    ) {
        let arrived = scattering.wait().unwrap_or_else(|error| fail(error));
        let mut start = 0;
        for matrix in round {
            let end = start + matrix.shard_of(self.group.rank()).run.len();
            let direction = arrived.view().slice(start..end);
            apply_direction(step, &mut states[matrix.unit], options, matrix, direction);
            start = end;
        }
    }
}

/// Computes `m = momentum * m + g`, and `direction = g + momentum * m`, of this rank's shard.
fn advance_momentum(
    step: &OptimizerStep<'_>,
    state: &mut UnitState,
    options: &MuonOptions,
    matrix: &ExchangedMatrix,
    mut direction: ViewMut<'_>,
) {
    let backend = step.rank().backend();
    let owned = matrix.param.owned_in_shard();
    if owned.is_empty() {
        return;
    }
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
    let gradient = matrix.param.owned_gradient();
    let args = SgdArgs { p: direction, g: gradient.view(), momentum: Some(momentum), copy: None };
    backend.sgd(&kernel, args);
}

/// Moves this rank's shard of a matrix against `direction`.
fn apply_direction(
    step: &OptimizerStep<'_>,
    state: &mut UnitState,
    options: &MuonOptions,
    matrix: &ExchangedMatrix,
    direction: View<'_>,
) {
    let Some(slice) = state.param_slice(step, &matrix.param, matrix.group) else { return };
    let decay = slice.weight_decay(options.adamw.weight_decay);
    let kernel = SgdStep {
        lr: (slice.lr() * matrix.update_scale()) as f32,
        momentum: 0.0,
        nesterov: false,
        // The learning rate of the decay is without the factor of the direction.
        weight_decay: (decay / matrix.update_scale()) as f32,
        grad_scale: 1.0,
    };
    slice.change_params(|params, copy| {
        let args = SgdArgs { p: params, g: direction, momentum: None, copy };
        step.rank().backend().sgd(&kernel, args);
    });
}

/// Returns the shard of a parameter that world rank `world` updates, given the run of its block.
fn matrix_shard(rank: &Rank, world: usize, param: &ParamRef, run: Range<usize>) -> MatrixShard {
    let extents: Vec<Extent> = param
        .dims()
        .iter()
        .zip(param.local_extents())
        .map(|(dim, extent)| {
            let axes = dim.axes();
            Extent::part(extent.global, rank.position_of(world, axes), rank.degree_of(axes))
        })
        .collect();
    let replicas = AxisSet::ALL.difference(param.varies()).difference(param.unit().shard_axes());
    let replica = rank.position_of(world, replicas);
    MatrixShard { replica, block: MatrixBlock::new(param, &extents), run }
}

/// Gathers the runs of every member: the part of a parameter that a member owns follows from the sizes of everything in
/// its unit, which need not be the same on all members.
fn gather_runs(
    group: &Communicator,
    own: impl Iterator<Item = Range<usize>>,
) -> Vec<Vec<Range<usize>>> {
    let halves = |number: usize| [(number as u64 >> 32) as u32, number as u32];
    let own: Vec<u32> = own.flat_map(|run| [run.start, run.end]).flat_map(halves).collect();
    let mut all = vec![0u32; own.len() * group.size()];
    let blocks = Blocks::even(1, own.len(), group.size());
    group
        .all_gather(&Site::new("Muon"), own.as_slice().into(), all.as_mut_slice().into(), &blocks)
        .unwrap_or_else(|error| fail(error));
    let number = |halves: &[u32]| (u64::from(halves[0]) << 32 | u64::from(halves[1])) as usize;
    let run = |words: &[u32]| number(&words[..2])..number(&words[2..]);
    (0..group.size())
        .map(|member| all[member * own.len()..][..own.len()].chunks_exact(4).map(run).collect())
        .collect()
}
