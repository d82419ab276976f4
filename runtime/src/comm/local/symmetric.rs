//! The collectives in which all members have the same part.

use std::cmp::Ordering;
use std::ops::Range;

use crate::backend::{DType, View, ViewMut};
use crate::comm::call::{Call, Op};
use crate::comm::{Blocks, ReduceOp, Site};

use super::kernels::Addend;
use super::operand::{COPY_LIMIT, Lent, Operand};
use super::parts::{blocks_of, by_dtype, by_float, part, reduce_range, reduce_range_into, run};
use super::seat::{Mode, Outcome, Seat};

impl Seat {
    pub fn all_reduce(&self, mode: Mode, site: &Site, op: ReduceOp, data: ViewMut<'_>) -> Outcome {
        let count = data.len();
        let call = self.call(mode, site, Op::AllReduce { op, count }, Some(data.dtype()));
        call.require_float()?;
        by_float!(data, T => self.all_reduce_of::<T>(call, op, data))
    }

    fn all_reduce_of<T: Addend>(&self, call: Call, op: ReduceOp, mut data: ViewMut<'_>) -> Outcome {
        let (count, bytes) = (data.len(), size_of::<T>() * data.len());
        if bytes <= COPY_LIMIT {
            let meeting = self.meet(call, Operand::source(data.as_view()))?;
            // SAFETY: small operands are copies.
            unsafe { reduce_range::<T>(&meeting, op, 0..count, data.typed()) };
            return Ok(());
        }
        let meeting = self.meet(call, Operand::Lent(Lent::target(&mut data)))?;
        let targets: Vec<&Lent> = meeting.operands().filter_map(Operand::lent).collect();
        for block in blocks_of(part::<T>(count, self.size(), self.member)) {
            // SAFETY: the operands are lent until the meeting parts, and of each this member alone touches its
            // part; the targets are different memory, each exclusively borrowed by its owner.
            let acc = unsafe { targets[0].write::<T>(block.clone()) };
            // SAFETY: as above.
            T::reduce(op, acc, targets[1..].iter().map(|t| unsafe { t.read(block.clone()) }));
            for target in &targets[1..] {
                // SAFETY: as above.
                unsafe { target.write::<T>(block.clone()) }.copy_from_slice(acc);
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

    /// As `all_gather`, of which it is a partner, with this member's part where it lies in the whole.
    pub fn all_gather_in_place(
        &self,
        mode: Mode,
        site: &Site,
        data: ViewMut<'_>,
        blocks: &Blocks,
    ) -> Outcome {
        let op = Op::AllGather { blocks: blocks.clone() };
        let call = self.call(mode, site, op, Some(data.dtype()));
        self.check_in_place(&call, data.len(), blocks)?;
        by_dtype!(data, T => {
            // What others read is apart from what this member writes.
            let own_run = run(&blocks.lens, self.member);
            let (before, rest) = data.typed::<T>().split_at_mut(own_run.start);
            let (own, after) = rest.split_at_mut(own_run.len());
            let meeting = self.meet(call, Operand::source(View::from(&*own)))?;
            for (member, operand) in meeting.operands().enumerate() {
                let Range { start, end } = run(&blocks.lens, member);
                let dst = match member.cmp(&self.member) {
                    Ordering::Less => &mut before[start..end],
                    Ordering::Equal => continue,
                    Ordering::Greater => &mut after[start - own_run.end..end - own_run.end],
                };
                // SAFETY: sources are only read while the meeting lasts.
                dst.copy_from_slice(unsafe { operand.read(0..end - start) });
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
        call.require_float()?;
        self.check_counts(&call, "blocks", &blocks.lens)?;
        call.require_len("src", src.len(), blocks.total())?;
        call.require_len("dst", dst.len(), blocks.owned(self.member))?;
        call.require_dtype(src.dtype(), dst.dtype())?;
        let meeting = self.meet(call, Operand::source(src))?;
        by_float!(dst, T => {
            let dst = dst.typed::<T>();
            for (whole, own) in blocks.runs(self.member) {
                // SAFETY: sources are only read while the meeting lasts.
                unsafe { reduce_range(&meeting, ReduceOp::Sum, whole, &mut dst[own]) };
            }
        });
        Ok(())
    }

    /// As `reduce_scatter`, of which it is a partner, with the sum where this member's part lies in the whole.
    pub fn reduce_scatter_in_place(
        &self,
        mode: Mode,
        site: &Site,
        mut data: ViewMut<'_>,
        blocks: &Blocks,
    ) -> Outcome {
        let op = Op::ReduceScatter { blocks: blocks.clone() };
        let call = self.call(mode, site, op, Some(data.dtype()));
        call.require_float()?;
        self.check_in_place(&call, data.len(), blocks)?;
        let (own, bytes) = (run(&blocks.lens, self.member), data.len() * data.dtype().bytes());
        if bytes <= COPY_LIMIT {
            let meeting = self.meet(call, Operand::source(data.as_view()))?;
            by_float!(data, T => {
                let dst = &mut data.typed::<T>()[own.clone()];
                // SAFETY: small operands are copies.
                unsafe { reduce_range(&meeting, ReduceOp::Sum, own, dst) };
            });
            return Ok(());
        }
        let target = Lent::target(&mut data);
        let meeting = self.meet(call, Operand::Lent(target))?;
        by_float!(data, T => {
            // SAFETY: the operands are lent until the meeting parts. Of the whole, each member touches its own run only,
            // reading it in every operand and writing it in its own, which it has borrowed exclusively; and the runs of
            // two members have no element in common.
            unsafe { reduce_range_into::<T>(&meeting, ReduceOp::Sum, own, &target) };
        });
        Ok(())
    }

    fn check_in_place(&self, call: &Call, len: usize, blocks: &Blocks) -> Outcome {
        self.check_counts(call, "blocks", &blocks.lens)?;
        call.require_len("data", len, blocks.total())?;
        match blocks.outer {
            1 => Ok(()),
            outer => Err(call.refuse(format!(
                "`blocks` has {outer} rows, but a collective in place takes one; use the form with `src` and `dst`"
            ))),
        }
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
