//! The collectives (all-reduce, reduce-scatter, all-gather, all-to-all, broadcast, ..) as transfers between the
//! operands of all members. Each member reads the memory of all others directly, so there is no ring and no tree.

use crate::blocks::run_of;
use crate::call::CommOp;
use crate::reduction::part_of;
use crate::{Blocks, ReduceOp};
use meshwright_backend::{View, ViewMut};

use super::member::{CallResult, IssuedCall, LocalMember};
use super::operand::{LentMemory, MemberOperand};
use super::participation::Participation;

impl LocalMember {
    /// Carries out a collective. Its arguments were checked before.
    pub fn run_collective(
        &self,
        issued: IssuedCall<'_>,
        src: Option<View<'_>>,
        dst: Option<ViewMut<'_>>,
    ) -> CallResult {
        match (&issued.call.op, src, dst) {
            (CommOp::AllReduce { op, .. }, _, Some(data)) => self.all_reduce(issued, *op, data),
            (CommOp::AllGather { blocks }, Some(src), Some(dst)) => {
                self.all_gather(issued, src, dst, blocks)
            }
            (CommOp::AllGather { blocks }, None, Some(data)) => {
                self.all_gather_in_place(issued, data, blocks)
            }
            (CommOp::ReduceScatter { blocks }, Some(src), Some(dst)) => {
                self.reduce_scatter(issued, src, dst, blocks)
            }
            (CommOp::ReduceScatter { blocks }, None, Some(data)) => {
                self.reduce_scatter_in_place(issued, data, blocks)
            }
            (CommOp::AllToAll { recv, .. }, Some(src), Some(dst)) => {
                self.all_to_all(issued, src, dst, recv)
            }
            (CommOp::Broadcast { root, .. }, _, Some(data)) => {
                self.broadcast(issued, root.group_rank, data)
            }
            (CommOp::Reduce { root, op, .. }, _, Some(data)) => {
                self.reduce(issued, root.group_rank, *op, data)
            }
            (CommOp::Scatter { root, counts }, src, Some(dst)) => {
                self.scatter(issued, root.group_rank, src, dst, counts)
            }
            (CommOp::Gather { counts, .. }, Some(src), dst) => {
                self.gather(issued, src, dst, counts)
            }
            (CommOp::Barrier, ..) => self.participate(issued, None, MemberOperand::None, |_| ()),
            _ => Err(issued.call.refuse("an operand is missing")),
        }
    }

    /// Participates with `src`, which members only read, and runs `transfer` into `dst`, which this member alone
    /// writes.
    fn read_sources(
        &self,
        issued: IssuedCall<'_>,
        src: View<'_>,
        mut dst: ViewMut<'_>,
        transfer: impl FnOnce(&Participation<'_>, &LentMemory),
    ) -> CallResult {
        let target = LentMemory::target(&mut dst);
        let operand = MemberOperand::source(src);
        self.participate(issued, Some(src), operand, |group| transfer(group, &target))
    }

    /// Participates with `data`, which members read and may write, and runs `transfer` on it.
    fn reduce_targets(
        &self,
        issued: IssuedCall<'_>,
        mut data: ViewMut<'_>,
        transfer: impl FnOnce(&Participation<'_>, &LentMemory),
    ) -> CallResult {
        let (target, operand) = (LentMemory::target(&mut data), MemberOperand::target(&mut data));
        let data = Some(data.as_view());
        self.participate(issued, data, operand, |group| transfer(group, &target))
    }

    fn all_reduce(&self, issued: IssuedCall<'_>, op: ReduceOp, data: ViewMut<'_>) -> CallResult {
        let (count, dtype) = (data.len(), data.dtype());
        self.reduce_targets(issued, data, |group, target| {
            let targets: Vec<&LentMemory> =
                group.operands().filter_map(MemberOperand::lent_memory).collect();
            let Some(first) = targets.first() else {
                // SAFETY: small operands are copies.
                return unsafe { group.combine_runs(op, 0..count, target, 0) };
            };
            for piece in group.pieces(part_of(dtype, count, self.size(), self.group_rank())) {
                // SAFETY: the operands are lent until the participation ends, and of each this member alone touches its
                // part; the targets are different memory, each exclusively borrowed by its owner.
                unsafe { group.combine_runs(op, piece.clone(), first, piece.start) };
                for target in &targets[1..] {
                    // SAFETY: as above.
                    unsafe { group.copy_run(0, piece.clone(), target, piece.start) };
                }
            }
        })
    }

    fn all_gather(
        &self,
        issued: IssuedCall<'_>,
        src: View<'_>,
        dst: ViewMut<'_>,
        blocks: &Blocks,
    ) -> CallResult {
        self.read_sources(issued, src, dst, |group, target| {
            // SAFETY: sources are only read during the participation, and `dst` is exclusive.
            unsafe { group.join_rows(blocks, target) };
        })
    }

    /// All-gather with this member's part in place in the whole tensor; other members may pass them separately.
    fn all_gather_in_place(
        &self,
        issued: IssuedCall<'_>,
        mut data: ViewMut<'_>,
        blocks: &Blocks,
    ) -> CallResult {
        let target = LentMemory::target(&mut data);
        let own = data.as_view().slice(run_of(&blocks.lens, self.group_rank()));
        self.participate(issued, Some(own), MemberOperand::source(own), |group| {
            for member in (0..self.size()).filter(|member| *member != self.group_rank()) {
                let to = run_of(&blocks.lens, member);
                // SAFETY: the others read a run that this member does not write, and it is only read during the
                // participation.
                unsafe { group.copy_run(member, 0..to.len(), &target, to.start) };
            }
        })
    }

    fn reduce_scatter(
        &self,
        issued: IssuedCall<'_>,
        src: View<'_>,
        dst: ViewMut<'_>,
        blocks: &Blocks,
    ) -> CallResult {
        self.read_sources(issued, src, dst, |group, target| {
            // SAFETY: sources are only read during the participation, and `dst` is exclusive.
            unsafe { group.sum_part(blocks, self.group_rank(), target) };
        })
    }

    /// Reduce-scatter with the sum in place of this member's part of the whole tensor; other members may pass them
    /// separately.
    fn reduce_scatter_in_place(
        &self,
        issued: IssuedCall<'_>,
        data: ViewMut<'_>,
        blocks: &Blocks,
    ) -> CallResult {
        self.reduce_targets(issued, data, |group, target| {
            let own = run_of(&blocks.lens, self.group_rank());
            let start = own.start;
            // SAFETY: the operands are copies, or lent until the participation ends. Each member touches its own run
            // only, reading it in every operand and writing it in its own, which it has borrowed exclusively; and the
            // runs of two members have no element in common.
            unsafe { group.combine_runs(ReduceOp::Sum, own, target, start) };
        })
    }

    fn all_to_all(
        &self,
        issued: IssuedCall<'_>,
        src: View<'_>,
        dst: ViewMut<'_>,
        recv: &[usize],
    ) -> CallResult {
        self.read_sources(issued, src, dst, |group, target| {
            for member in 0..self.size() {
                // The part for this member in the source of the other one.
                let CommOp::AllToAll { send, .. } = &group.call(member).op else { continue };
                let (from, to) = (run_of(send, self.group_rank()), run_of(recv, member));
                // SAFETY: sources are only read during the participation, and `dst` is exclusive.
                unsafe { group.copy_run(member, from, target, to.start) };
            }
        })
    }

    fn broadcast(&self, issued: IssuedCall<'_>, root: usize, mut data: ViewMut<'_>) -> CallResult {
        let is_root = root == self.group_rank();
        let target = LentMemory::target(&mut data);
        let operand =
            if is_root { MemberOperand::source(data.as_view()) } else { MemberOperand::None };
        self.participate(issued, Some(data.as_view()), operand, |group| {
            if !is_root {
                // SAFETY: the root's memory is only read during the participation, and `data` is exclusive.
                unsafe { group.copy_run(root, 0..target.len(), &target, 0) };
            }
        })
    }

    fn reduce(
        &self,
        issued: IssuedCall<'_>,
        root: usize,
        op: ReduceOp,
        data: ViewMut<'_>,
    ) -> CallResult {
        let (count, dtype) = (data.len(), data.dtype());
        self.reduce_targets(issued, data, |group, target| {
            match group.operand(root).lent_memory() {
                Some(target) => {
                    let part = part_of(dtype, count, self.size(), self.group_rank());
                    let start = part.start;
                    // SAFETY: the operands are lent until the participation ends, and of each this member alone touches
                    // its part.
                    unsafe { group.combine_runs(op, part, target, start) };
                }
                // SAFETY: small operands are copies.
                None if root == self.group_rank() => unsafe {
                    group.combine_runs(op, 0..count, target, 0);
                },
                None => {}
            }
        })
    }

    fn scatter(
        &self,
        issued: IssuedCall<'_>,
        root: usize,
        src: Option<View<'_>>,
        mut dst: ViewMut<'_>,
        counts: &[usize],
    ) -> CallResult {
        let target = LentMemory::target(&mut dst);
        let operand = src.map_or(MemberOperand::None, MemberOperand::source);
        self.participate(issued, Some(dst.as_view()), operand, |group| {
            // SAFETY: the root's memory is only read during the participation, and `dst` is exclusive.
            unsafe { group.copy_run(root, run_of(counts, self.group_rank()), &target, 0) };
        })
    }

    fn gather(
        &self,
        issued: IssuedCall<'_>,
        src: View<'_>,
        mut dst: Option<ViewMut<'_>>,
        counts: &[usize],
    ) -> CallResult {
        let target = dst.as_mut().map(LentMemory::target);
        self.participate(issued, Some(src), MemberOperand::source(src), |group| {
            let Some(target) = target else { return };
            for member in 0..self.size() {
                let to = run_of(counts, member);
                // SAFETY: sources are only read during the participation, and `dst` is exclusive.
                unsafe { group.copy_run(member, 0..counts[member], &target, to.start) };
            }
        })
    }
}
