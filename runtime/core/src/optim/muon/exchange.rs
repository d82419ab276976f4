//! All-to-all exchange of matrix shards with the ranks that orthogonalize the matrices.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use crate::layout::{AxisId, AxisSet};
use crate::tensor::{Extent, ParamRef, Rank, Unit, fail};
use meshwright_backend::{Buffer, Category, DType};
use meshwright_comm::{Blocks, Communicator, PendingCall, Site};

use super::super::{Group, OptimizerStep, ParamGroups, UnitState};
use super::exchanged_matrix::ExchangedMatrix;
use super::matrix::{MatrixBlock, MatrixShard};
use super::newton_schulz::orthogonalization_flops;
use super::{MuonOptions, orthogonalize};

/// The matrices of the model, in rounds of one matrix per member of the group. The owner of a matrix gathers its shards
/// from the members of its replica, and sends every member that member's shard of the result.
///
/// The last member owns the largest matrix of each round, and one of the last round, which may have fewer matrices than
/// members: it also has the largest parts of dims that do not divide evenly, so a dry run of it finds the most.
pub struct MatrixExchange {
    /// The ranks that together hold the same model.
    group: Arc<Communicator>,
    matrices: Vec<ExchangedMatrix>,
}

/// An all-to-all exchange that has started. It keeps what it sends until its end, also in a dry run, whose calls are
/// complete immediately.
struct StartedExchange {
    call: PendingCall,
    _sent: Arc<Buffer>,
}

impl StartedExchange {
    /// Returns what has arrived.
    fn wait(self) -> Buffer {
        self.call.wait().unwrap_or_else(|error| fail(error))
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
        found.chunks_mut(group.size()).for_each(<[_]>::reverse);
        let params = || found.iter().map(|(_, param, _)| param);
        let runs = if rank.backend().is_dry_run() {
            let on = |world: &usize| params().map(|param| param.owned_on(*world)).collect();
            group.members().iter().map(on).collect()
        } else {
            gather_runs(&group, params().map(ParamRef::owned))
        };
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

    /// Returns the FLOPs of a member with a world rank in a step, and the bytes that it sends.
    pub fn work_on(&self, world_rank: usize) -> [usize; 2] {
        let member = self.group.members().iter().position(|member| *member == world_rank);
        let member = member.expect("the ranks at a position along `pp` are the members");
        let [mut flops, mut sent] = [0; 2];
        for round in self.matrices.chunks(self.group.size()) {
            for (owner, matrix) in (self.first_owner(round)..).zip(round) {
                if owner == member {
                    flops += orthogonalization_flops(matrix.rows(), matrix.cols());
                    let others =
                        matrix.shards.iter().enumerate().filter(|(other, _)| *other != owner);
                    sent += others.map(|(_, shard)| shard.run.len()).sum::<usize>();
                } else if matrix.shard_of(owner).replica == matrix.shard_of(member).replica {
                    sent += matrix.shard_of(member).run.len();
                }
            }
        }
        [flops, sent * DType::F32.bytes()]
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
            let gathered = gathering.wait();
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
        round.get(self.group.rank().checked_sub(self.first_owner(round))?)
    }

    /// Returns the member that owns the first matrix of a round; the next ones own the others.
    fn first_owner(&self, round: &[ExchangedMatrix]) -> usize {
        self.group.size() - round.len()
    }

    /// Adds the gradients to the momentum, and starts to send the update directions to the owners.
    fn start_gather(
        &self,
        step: &OptimizerStep<'_>,
        states: &mut [UnitState],
        options: &MuonOptions,
        round: &[ExchangedMatrix],
    ) -> StartedExchange {
        let (me, members) = (self.group.rank(), self.group.size());
        let (mut send, mut recv) = (vec![0; members], vec![0; members]);
        let first = self.first_owner(round);
        for (owner, matrix) in (first..).zip(round) {
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
        let unsent = round.iter().zip(&send[first..]).filter(|(_, sent)| **sent == 0);
        let unsent = unsent.map(|(matrix, _)| matrix.shard_of(me).run.len()).max().unwrap_or(0);
        let mut scratch = allocator.alloc(DType::F32, unsent, Category::Workspace);
        let len = send.iter().sum();
        let mut sent = allocator.alloc(DType::F32, len, Category::Communication);
        let mut start = 0;
        for (matrix, count) in round.iter().zip(&send[first..]) {
            let direction = match *count {
                0 => scratch.view_mut().into_slice(0..matrix.shard_of(me).run.len()),
                count => sent.view_mut().into_slice(start..start + count),
            };
            matrix.advance_momentum(step, &mut states[matrix.unit], options, direction);
            start += count;
        }
        let arriving = allocator.alloc(DType::F32, recv.iter().sum(), Category::Communication);
        self.start(&round[round.len() - 1].gather, sent, arriving, [&send, &recv])
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
    ) -> StartedExchange {
        let (backend, allocator) = (rank.backend(), rank.allocator());
        let (me, members) = (self.group.rank(), self.group.size());
        let (mut send, mut recv) = (vec![0; members], vec![0; members]);
        for (owner, matrix) in (self.first_owner(round)..).zip(round) {
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
        self.start(&round[round.len() - 1].scatter, sent, arriving, [&send, &recv])
    }

    /// Starts an exchange, of numbers of elements to send to each member, and to receive from it.
    fn start(
        &self,
        site: &Site,
        sent: Buffer,
        arriving: Buffer,
        [send, recv]: [&[usize]; 2],
    ) -> StartedExchange {
        let sent = Arc::new(sent);
        let call = self.group.start_all_to_all(site, Arc::clone(&sent), arriving, send, recv);
        StartedExchange { call, _sent: sent }
    }

    /// Waits for the results of a round and applies them.
    fn finish_round(
        &self,
        step: &OptimizerStep<'_>,
        states: &mut [UnitState],
        options: &MuonOptions,
        round: &[ExchangedMatrix],
        scattering: StartedExchange,
    ) {
        let arrived = scattering.wait();
        let mut start = 0;
        for matrix in round {
            let end = start + matrix.shard_of(self.group.rank()).run.len();
            let direction = arrived.view().slice(start..end);
            matrix.apply_direction(step, &mut states[matrix.unit], options, direction);
            start = end;
        }
    }
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
