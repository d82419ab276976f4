//! The collectives in which all members have the same part.

use crate::backend::{DType, View, ViewMut};
use crate::comm::call::Op;
use crate::comm::{Blocks, ReduceOp, Site};

use super::kernels::fold;
use super::operand::{COPY_LIMIT, Lent, Operand};
use super::parts::{blocks_of, by_dtype, part, reduce_range, run};
use super::seat::{Mode, Outcome, Seat};

impl Seat {
    pub fn all_reduce(
        &self,
        mode: Mode,
        site: &Site,
        op: ReduceOp,
        mut data: ViewMut<'_>,
    ) -> Outcome {
        let count = data.len();
        let call = self.call(mode, site, Op::AllReduce { op, count }, Some(data.dtype()));
        call.require_f32()?;
        let bytes = data.dtype().bytes() * count;
        self.counters.count(2 * self.shared(bytes));
        if bytes <= COPY_LIMIT {
            let post = Operand::source(data.as_view());
            let meeting = self.meet(call, post)?;
            // SAFETY: small operands are copies.
            unsafe { reduce_range(&meeting, op, 0..count, data.typed()) };
            return Ok(());
        }
        let meeting = self.meet(call, Operand::Lent(Lent::target(&mut data)))?;
        let targets: Vec<&Lent> = meeting.operands().filter_map(Operand::lent).collect();
        for block in blocks_of(part(count, self.size(), self.member)) {
            // SAFETY: the operands are lent until the meeting parts, and of each this member alone touches its
            // part; the targets are different memory, each exclusively borrowed by its owner.
            let accumulator = unsafe { targets[0].write::<f32>(block.clone()) };
            for target in &targets[1..] {
                // SAFETY: as above.
                fold(op, accumulator, unsafe { target.read(block.clone()) });
            }
            for target in &targets[1..] {
                // SAFETY: as above.
                unsafe { target.write::<f32>(block.clone()) }.copy_from_slice(accumulator);
            }
        }
        Ok(())
    }

    pub fn all_gather(
        &self,
        mode: Mode,
        site: &Site,
        src: View<'_>,
        dst: ViewMut<'_>,
        blocks: &Blocks,
    ) -> Outcome {
        let op = Op::AllGather { blocks: blocks.clone() };
        let call = self.call(mode, site, op, Some(src.dtype()));
        self.check_counts(&call, "blocks", &blocks.lens)?;
        call.require_len("src", src.len(), blocks.owned(self.member))?;
        call.require_len("dst", dst.len(), blocks.total())?;
        call.require_dtype(src.dtype(), dst.dtype())?;
        self.counters.count(self.shared(blocks.total() * src.dtype().bytes()));
        let meeting = self.meet(call, Operand::source(src))?;
        by_dtype!(dst, T => {
            let dst = dst.typed::<T>();
            for (member, operand) in meeting.operands().enumerate() {
                for (whole, own) in blocks.runs(member) {
                    // SAFETY: sources are only read while the meeting lasts.
                    dst[whole].copy_from_slice(unsafe { operand.read(own) });
                }
            }
        });
        Ok(())
    }

    pub fn reduce_scatter(
        &self,
        mode: Mode,
        site: &Site,
        src: View<'_>,
        mut dst: ViewMut<'_>,
        blocks: &Blocks,
    ) -> Outcome {
        let op = Op::ReduceScatter { blocks: blocks.clone() };
        let call = self.call(mode, site, op, Some(src.dtype()));
        call.require_f32()?;
        self.check_counts(&call, "blocks", &blocks.lens)?;
        call.require_len("src", src.len(), blocks.total())?;
        call.require_len("dst", dst.len(), blocks.owned(self.member))?;
        call.require_dtype(src.dtype(), dst.dtype())?;
        self.counters.count(self.shared(blocks.total() * src.dtype().bytes()));
        let meeting = self.meet(call, Operand::source(src))?;
        let dst = dst.typed::<f32>();
        for (whole, own) in blocks.runs(self.member) {
            // SAFETY: sources are only read while the meeting lasts.
            unsafe { reduce_range(&meeting, ReduceOp::Sum, whole, &mut dst[own]) };
        }
        Ok(())
    }

    pub fn all_to_all(
        &self,
        mode: Mode,
        site: &Site,
        src: View<'_>,
        dst: ViewMut<'_>,
        send: &[usize],
        recv: &[usize],
    ) -> Outcome {
        let op = Op::AllToAll { send: send.into(), recv: recv.into() };
        let call = self.call(mode, site, op, Some(src.dtype()));
        self.check_counts(&call, "send", send)?;
        self.check_counts(&call, "recv", recv)?;
        call.require_len("src", src.len(), send.iter().sum())?;
        call.require_len("dst", dst.len(), recv.iter().sum())?;
        call.require_dtype(src.dtype(), dst.dtype())?;
        call.require_len("what a rank sends to itself", recv[self.member], send[self.member])?;
        self.counters.count((src.len() - send[self.member]) * src.dtype().bytes());
        let meeting = self.meet(call, Operand::source(src))?;
        by_dtype!(dst, T => {
            let dst = dst.typed::<T>();
            for (member, operand) in meeting.operands().enumerate() {
                // Where the part for this member starts in the source of the other one.
                let start = meeting.call(member).sent_before(self.member);
                let (from, to) = (start..start + recv[member], run(recv, member));
                // SAFETY: sources are only read while the meeting lasts.
                dst[to].copy_from_slice(unsafe { operand.read(from) });
            }
        });
        Ok(())
    }
}
