//! The collectives in which all members have the same part.

use crate::backend::{View, ViewMut};
use crate::comm::call::Op;
use crate::comm::{Blocks, ReduceOp, Site};

use super::operand::{Lent, Operand};
use super::parts::{part, run};
use super::seat::{Mode, Outcome, Seat};

impl Seat {
    pub fn all_reduce(
        &self,
        mode: &Mode,
        site: &Site,
        op: ReduceOp,
        mut data: ViewMut<'_>,
    ) -> Outcome {
        let (count, dtype) = (data.len(), data.dtype());
        let call = self.call(mode, site, Op::AllReduce { op, count }, Some(data.as_view()));
        call.require_float()?;
        let (target, operand) = (Lent::target(&mut data), Operand::target(&mut data));
        self.meet(call, mode, Some(data.as_view()), operand, |meeting| {
            let targets: Vec<&Lent> = meeting.operands().filter_map(Operand::lent).collect();
            let Some(first) = targets.first() else {
                // SAFETY: small operands are copies.
                return unsafe { meeting.combine(op, 0..count, &target, 0) };
            };
            for piece in meeting.pieces(part(dtype, count, self.size(), self.member)) {
                // SAFETY: the operands are lent until the meeting parts, and of each this member alone touches its
                // part; the targets are different memory, each exclusively borrowed by its owner.
                unsafe { meeting.combine(op, piece.clone(), first, piece.start) };
                for target in &targets[1..] {
                    // SAFETY: as above.
                    unsafe { meeting.copy(0, piece.clone(), target, piece.start) };
                }
            }
        })
    }

    pub fn all_gather(
        &self,
        mode: &Mode,
        site: &Site,
        src: View<'_>,
        mut dst: ViewMut<'_>,
        blocks: &Blocks,
    ) -> Outcome {
        let op = Op::AllGather { blocks: blocks.clone() };
        let call = self.call(mode, site, op, Some(src));
        self.check_counts(&call, "blocks", &blocks.lens)?;
        call.require_len("src", src.len(), blocks.owned(self.member))?;
        call.require_len("dst", dst.len(), blocks.total())?;
        call.require_alike(src, dst.as_view())?;
        let target = Lent::target(&mut dst);
        self.meet(call, mode, Some(src), Operand::source(src), |meeting| {
            // SAFETY: sources are only read while the meeting lasts, and `dst` is exclusive.
            unsafe { meeting.join(blocks, &target) };
        })
    }

    /// As `all_gather`, of which it is a partner, with this member's part where it lies in the whole.
    pub fn all_gather_in_place(
        &self,
        mode: &Mode,
        site: &Site,
        mut data: ViewMut<'_>,
        blocks: &Blocks,
    ) -> Outcome {
        let op = Op::AllGather { blocks: blocks.clone() };
        let call = self.call(mode, site, op, Some(data.as_view()));
        call.require_row(data.len(), blocks, self.size())?;
        let target = Lent::target(&mut data);
        let own = data.as_view().slice(run(&blocks.lens, self.member));
        self.meet(call, mode, Some(own), Operand::source(own), |meeting| {
            for member in (0..self.size()).filter(|member| *member != self.member) {
                let to = run(&blocks.lens, member);
                // SAFETY: what others read is apart from what this member writes, and only read while the meeting lasts.
                unsafe { meeting.copy(member, 0..to.len(), &target, to.start) };
            }
        })
    }

    pub fn reduce_scatter(
        &self,
        mode: &Mode,
        site: &Site,
        src: View<'_>,
        mut dst: ViewMut<'_>,
        blocks: &Blocks,
    ) -> Outcome {
        let op = Op::ReduceScatter { blocks: blocks.clone() };
        let call = self.call(mode, site, op, Some(src));
        call.require_float()?;
        self.check_counts(&call, "blocks", &blocks.lens)?;
        call.require_len("src", src.len(), blocks.total())?;
        call.require_len("dst", dst.len(), blocks.owned(self.member))?;
        call.require_alike(src, dst.as_view())?;
        let target = Lent::target(&mut dst);
        self.meet(call, mode, Some(src), Operand::source(src), |meeting| {
            // SAFETY: sources are only read while the meeting lasts, and `dst` is exclusive.
            unsafe { meeting.sum_part(blocks, self.member, &target) };
        })
    }

    /// As `reduce_scatter`, of which it is a partner, with the sum where this member's part lies in the whole.
    pub fn reduce_scatter_in_place(
        &self,
        mode: &Mode,
        site: &Site,
        mut data: ViewMut<'_>,
        blocks: &Blocks,
    ) -> Outcome {
        let op = Op::ReduceScatter { blocks: blocks.clone() };
        let call = self.call(mode, site, op, Some(data.as_view()));
        call.require_float()?;
        call.require_row(data.len(), blocks, self.size())?;
        let (target, operand) = (Lent::target(&mut data), Operand::target(&mut data));
        self.meet(call, mode, Some(data.as_view()), operand, |meeting| {
            let own = run(&blocks.lens, self.member);
            let start = own.start;
            // SAFETY: the operands are copies, or lent until the meeting parts. Of the whole, each member touches its own
            // run only, reading it in every operand and writing it in its own, which it has borrowed exclusively; and the
            // runs of two members have no element in common.
            unsafe { meeting.combine(ReduceOp::Sum, own, &target, start) };
        })
    }

    pub fn all_to_all(
        &self,
        mode: &Mode,
        site: &Site,
        src: View<'_>,
        mut dst: ViewMut<'_>,
        send: &[usize],
        recv: &[usize],
    ) -> Outcome {
        let op = Op::AllToAll { send: send.into(), recv: recv.into() };
        let call = self.call(mode, site, op, Some(src));
        self.check_counts(&call, "send", send)?;
        self.check_counts(&call, "recv", recv)?;
        call.require_len("src", src.len(), send.iter().sum())?;
        call.require_len("dst", dst.len(), recv.iter().sum())?;
        call.require_alike(src, dst.as_view())?;
        call.require_len("what a rank sends to itself", recv[self.member], send[self.member])?;
        let target = Lent::target(&mut dst);
        self.meet(call, mode, Some(src), Operand::source(src), |meeting| {
            for member in 0..self.size() {
                // Where the part for this member starts in the source of the other one.
                let start = meeting.call(member).sent_before(self.member);
                let (from, to) = (start..start + recv[member], run(recv, member));
                // SAFETY: sources are only read while the meeting lasts, and `dst` is exclusive.
                unsafe { meeting.copy(member, from, &target, to.start) };
            }
        })
    }
}
