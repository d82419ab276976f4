//! The way of matrices to the ranks that orthogonalise them, and back.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use crate::backend::{Buffer, Category, DType, SgdArgs, SgdStep, View, ViewMut};
use crate::comm::{Blocks, Communicator, Pending, Site};
use crate::layout::{AxisId, AxisSet};
use crate::tensor::{Extent, ParamRef, Rank, Unit, ZeroLevel, fail};

use super::super::{Group, ParamGroups, UnitState};
use super::matrix::{Block, Part};
use super::{KINDS, MuonOptions, orthogonalise};

/// The root mean square of the elements of AdamW's updates, as it usually is.
const RMS: f64 = 0.2;

/// The matrices of the model, in rounds: in each, every member of the group owns one, for which the members of its
/// replica send it their parts, and of which it sends every member its part back.
pub struct Exchange {
    /// The ranks that hold the same model, all of it together.
    group: Arc<Communicator>,
    matrices: Vec<Matrix>,
}

struct Matrix {
    param: ParamRef,
    /// Index of its unit.
    unit: usize,
    group: Group,
    /// The part of each member.
    parts: Vec<Part>,
    gather: Site,
    scatter: Site,
}

impl Matrix {
    fn part(&self, member: usize) -> &Part {
        &self.parts[member]
    }

    fn rows(&self) -> usize {
        self.parts[0].block.matrix_rows()
    }

    fn cols(&self) -> usize {
        self.parts[0].block.matrix_cols()
    }

    /// Factor on its orthogonalised momentum.
    fn scale(&self) -> f64 {
        RMS * (self.rows().max(self.cols()) as f64).sqrt()
    }
}

/// What is the same for all matrices in one step.
struct Turn<'a> {
    rank: &'a Rank,
    options: &'a MuonOptions,
    lr: f64,
    grad_scale: f32,
}

impl Exchange {
    pub fn new(rank: &Rank, units: &[Rc<Unit>], groups: &ParamGroups) -> Exchange {
        let group = rank.process_group(AxisSet::ALL.minus(AxisSet::of(AxisId::Pp)));
        let mut found: Vec<(usize, ParamRef, Group)> = Vec::new();
        for (unit, params) in units.iter().map(|unit| unit.params()).enumerate() {
            for param in params {
                let group = groups.of(&param);
                found.extend(group.matrix.then_some((unit, param, group)));
            }
        }
        // Those of a round are about equally much work.
        found.sort_by_key(|(_, param, _)| std::cmp::Reverse(param.global_len()));
        let runs = gather_runs(&group, found.iter().map(|(_, param, _)| param.owned()));
        let matrices = found
            .into_iter()
            .enumerate()
            .map(|(index, (unit, param, of))| {
                let members = group.members().iter().zip(&runs);
                let part = |(world, runs): (&usize, &Vec<Range<usize>>)| {
                    part_of(rank, *world, &param, runs[index].clone())
                };
                let parts = members.map(part).collect();
                let [gather, scatter] = ["gathered", "orthogonalised"]
                    .map(|what| Site::new(format!("{} ({what})", param.path())));
                Matrix { unit, param, group: of, parts, gather, scatter }
            })
            .collect();
        Exchange { group, matrices }
    }

    /// Updates every matrix.
    pub fn update(
        &self,
        rank: &Rank,
        states: &mut [UnitState],
        options: &MuonOptions,
        lr: f64,
        grad_scale: f32,
    ) {
        let turn = Turn { rank, options, lr, grad_scale };
        let mut rounds = self.matrices.chunks(self.group.size());
        let Some(mut round) = rounds.next() else { return };
        let mut gathering = self.start_gather(&turn, states, round);
        let mut returning = None;
        loop {
            let gathered = gathering.wait().unwrap_or_else(|error| fail(error));
            let next = rounds.next();
            // On its way while this round's are worked on.
            let next = next.map(|next| (next, self.start_gather(&turn, states, next)));
            let result = self.own(round).map(|own| self.orthogonalise(&turn, own, gathered));
            let scattering = self.start_scatter(&turn, round, result);
            if let Some((round, pending)) = returning.replace((round, scattering)) {
                self.finish(&turn, states, round, pending);
            }
            match next {
                Some(next) => (round, gathering) = next,
                None => break,
            }
        }
        if let Some((round, pending)) = returning {
            self.finish(&turn, states, round, pending);
        }
    }

    /// The matrix of a round that this rank owns, if there are so many.
    fn own<'a>(&self, round: &'a [Matrix]) -> Option<&'a Matrix> {
        round.get(self.group.rank())
    }

    /// Takes the gradients into the momentum, and begins to send the direction of the step to the owners.
    fn start_gather(&self, turn: &Turn<'_>, states: &mut [UnitState], round: &[Matrix]) -> Pending {
        let (me, members) = (self.group.rank(), self.group.size());
        let (mut send, mut recv) = (vec![0; members], vec![0; members]);
        for (owner, matrix) in round.iter().enumerate() {
            if matrix.part(owner).replica == matrix.part(me).replica {
                send[owner] = matrix.part(me).run.len();
            }
        }
        if let Some(own) = self.own(round) {
            for (member, count) in recv.iter_mut().enumerate() {
                if own.part(member).replica == own.part(me).replica {
                    *count = own.part(member).run.len();
                }
            }
        }
        let meter = turn.rank.meter();
        let unsent = round.iter().zip(&send).filter(|(_, sent)| **sent == 0);
        let unsent = unsent.map(|(matrix, _)| matrix.part(me).run.len()).max().unwrap_or(0);
        let mut aside = meter.alloc(DType::F32, unsent, Category::Workspace);
        let len = send.iter().sum();
        let mut sent = meter.alloc(DType::F32, len, Category::Communication);
        let mut start = 0;
        for (matrix, count) in round.iter().zip(&send) {
            let direction = match *count {
                0 => aside.view_mut().into_slice(0..matrix.part(me).run.len()),
                count => sent.view_mut().into_slice(start..start + count),
            };
            turn.advance(&mut states[matrix.unit], matrix, direction);
            start += count;
        }
        let room = meter.alloc(DType::F32, recv.iter().sum(), Category::Communication);
        self.group.start_all_to_all(&round[0].gather, Arc::new(sent), room, &send, &recv)
    }

    /// The orthogonalised matrix, from the parts that have arrived.
    fn orthogonalise(&self, turn: &Turn<'_>, own: &Matrix, gathered: Buffer) -> Buffer {
        let backend = turn.rank.backend();
        let (rows, cols) = (own.rows(), own.cols());
        let mut matrix = turn.rank.scratch(DType::F32, rows * cols);
        let mut start = 0;
        for part in &own.parts {
            if part.replica == own.part(self.group.rank()).replica {
                let end = start + part.run.len();
                part.put(backend, gathered.view().slice(start..end), matrix.view_mut());
                start = end;
            }
        }
        drop(gathered);
        orthogonalise(backend, matrix, rows, cols, turn.rank.compute_dtype())
    }

    /// Begins to send every member its part of this rank's matrix.
    fn start_scatter(&self, turn: &Turn<'_>, round: &[Matrix], result: Option<Buffer>) -> Pending {
        let (backend, meter) = (turn.rank.backend(), turn.rank.meter());
        let (me, members) = (self.group.rank(), self.group.size());
        let (mut send, mut recv) = (vec![0; members], vec![0; members]);
        for (owner, matrix) in round.iter().enumerate() {
            recv[owner] = matrix.part(me).run.len();
        }
        if let Some(own) = self.own(round) {
            send = own.parts.iter().map(|part| part.run.len()).collect();
        }
        let len = send.iter().sum();
        let mut sent = meter.alloc(DType::F32, len, Category::Communication);
        if let (Some(own), Some(result)) = (self.own(round), result) {
            let mut start = 0;
            for part in &own.parts {
                let end = start + part.run.len();
                part.take(backend, result.view(), sent.view_mut().into_slice(start..end));
                start = end;
            }
        }
        let room = meter.alloc(DType::F32, recv.iter().sum(), Category::Communication);
        self.group.start_all_to_all(&round[0].scatter, Arc::new(sent), room, &send, &recv)
    }

    /// Applies what has come back of a round.
    fn finish(
        &self,
        turn: &Turn<'_>,
        states: &mut [UnitState],
        round: &[Matrix],
        scattering: Pending,
    ) {
        let arrived = scattering.wait().unwrap_or_else(|error| fail(error));
        let mut start = 0;
        for matrix in round {
            let end = start + matrix.part(self.group.rank()).run.len();
            turn.apply(&states[matrix.unit], matrix, arrived.view().slice(start..end));
            start = end;
        }
    }
}

impl Turn<'_> {
    /// `m = momentum * m + g`, and `direction = g + momentum * m`, of this rank's part.
    fn advance(&self, state: &mut UnitState, matrix: &Matrix, mut direction: ViewMut<'_>) {
        let backend = self.rank.backend();
        let owned = matrix.param.owned_in_shard();
        if owned.is_empty() {
            return;
        }
        let [momentum] = state.views(KINDS, &owned);
        // A step of length -1 from zero, looking ahead, is the direction.
        let step = SgdStep {
            lr: -1.0,
            momentum: self.options.momentum as f32,
            nesterov: true,
            weight_decay: 0.0,
            grad_scale: self.grad_scale,
        };
        backend.fill(direction.reborrow(), 0.0);
        let gradient = matrix.param.owned_gradient();
        backend.sgd(
            &step,
            SgdArgs { p: direction, g: gradient.view(), momentum: Some(momentum), copy: None },
        );
    }

    /// Moves this rank's part of a matrix against `direction`.
    fn apply(&self, state: &UnitState, matrix: &Matrix, direction: View<'_>) {
        let unit = state.unit();
        let Some((range, _)) = unit.in_shard(matrix.param.range()) else { return };
        let lr = self.lr * matrix.group.lr_scale;
        let decay = if matrix.group.decays { self.options.adamw.weight_decay } else { 0.0 };
        let step = SgdStep {
            lr: (lr * matrix.scale()) as f32,
            momentum: 0.0,
            nesterov: false,
            // The learning rate of the decay is without the factor of the direction.
            weight_decay: (decay / matrix.scale()) as f32,
            grad_scale: 1.0,
        };
        unit.change_values(range, |values, copy| {
            self.rank
                .backend()
                .sgd(&step, SgdArgs { p: values, g: direction, momentum: None, copy });
        });
    }
}

/// What the rank numbered `world` updates of a parameter, given the run of its block.
fn part_of(rank: &Rank, world: usize, param: &ParamRef, run: Range<usize>) -> Part {
    let mesh = rank.comms().shape();
    let extents: Vec<Extent> = param
        .dims()
        .iter()
        .zip(param.local_extents())
        .map(|(dim, extent)| {
            let axes = dim.axes();
            Extent::part(extent.global, mesh.index_in_group(world, axes), mesh.degree_of(axes))
        })
        .collect();
    let sharded = match rank.zero_level() {
        ZeroLevel::Replicated => AxisSet::NONE,
        _ => AxisSet::of(AxisId::Fsdp),
    };
    let replicas = AxisSet::ALL.minus(param.varies()).minus(sharded);
    Part { replica: mesh.index_in_group(world, replicas), block: Block::of(param, &extents), run }
}

/// The runs of every member. They are asked for, because what a member owns of a parameter follows from the sizes of
/// everything in its unit, which need not be the same on all members.
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
