//! The collectives in which one member, the root, has a part of its own.

use crate::backend::{DType, View, ViewMut};
use crate::comm::call::Op;
use crate::comm::{ReduceOp, Site};

use super::operand::{COPY_LIMIT, Lent, Operand};
use super::parts::{by_dtype, by_float, part, reduce_range, reduce_range_into, run};
use super::seat::{Mode, Outcome, Seat};

impl Seat {
    pub fn broadcast(&self, mode: Mode, site: &Site, root: usize, dst: ViewMut<'_>) -> Outcome {
        let op = Op::Broadcast { root: self.world_root(root), count: dst.len() };
        let call = self.call(mode, site, op, Some(dst.dtype()));
        self.check_member(&call, "root", root)?;
        let is_root = root == self.member;
        let post = if is_root { Operand::source(dst.as_view()) } else { Operand::None };
        let meeting = self.meet(call, post)?;
        if !is_root {
            by_dtype!(dst, T => {
                let dst = dst.typed::<T>();
                // SAFETY: the root's memory is only read while the meeting lasts.
                dst.copy_from_slice(unsafe { meeting.operand(root).read(0..dst.len()) });
            });
        }
        Ok(())
    }

    pub fn reduce(
        &self,
        mode: Mode,
        site: &Site,
        root: usize,
        op: ReduceOp,
        mut data: ViewMut<'_>,
    ) -> Outcome {
        let count = data.len();
        let signature = Op::Reduce { root: self.world_root(root), op, count };
        let call = self.call(mode, site, signature, Some(data.dtype()));
        call.require_float()?;
        self.check_member(&call, "root", root)?;
        let bytes = count * data.dtype().bytes();
        if bytes <= COPY_LIMIT {
            let meeting = self.meet(call, Operand::source(data.as_view()))?;
            if root == self.member {
                by_float!(data, T => {
                    // SAFETY: small operands are copies.
                    unsafe { reduce_range::<T>(&meeting, op, 0..count, data.typed()) }
                });
            }
            return Ok(());
        }
        let meeting = self.meet(call, Operand::Lent(Lent::target(&mut data)))?;
        let Some(target) = meeting.operand(root).lent() else { return Ok(()) };
        by_float!(data, T => {
            let part = part::<T>(count, self.size(), self.member);
            // SAFETY: the operands are lent until the meeting parts, and of each this member alone touches its part.
            unsafe { reduce_range_into::<T>(&meeting, op, part, target) };
        });
        Ok(())
    }

    pub fn scatter(
        &self,
        mode: Mode,
        site: &Site,
        root: usize,
        src: Option<View<'_>>,
        dst: ViewMut<'_>,
        counts: &[usize],
    ) -> Outcome {
        let op = Op::Scatter { root: self.world_root(root), counts: counts.into() };
        let call = self.call(mode, site, op, Some(dst.dtype()));
        self.check_member(&call, "root", root)?;
        self.check_counts(&call, "counts", counts)?;
        call.require_len("dst", dst.len(), counts[self.member])?;
        call.require_at_root("src", src.is_some(), root == self.member)?;
        if let Some(src) = src {
            call.require_len("src", src.len(), counts.iter().sum())?;
            call.require_dtype(src.dtype(), dst.dtype())?;
        }
        let meeting = self.meet(call, src.map_or(Operand::None, Operand::source))?;
        by_dtype!(dst, T => {
            let part = run(counts, self.member);
            // SAFETY: the root's memory is only read while the meeting lasts.
            dst.typed::<T>().copy_from_slice(unsafe { meeting.operand(root).read(part) });
        });
        Ok(())
    }

    pub fn gather(
        &self,
        mode: Mode,
        site: &Site,
        root: usize,
        src: View<'_>,
        dst: Option<ViewMut<'_>>,
        counts: &[usize],
    ) -> Outcome {
        let op = Op::Gather { root: self.world_root(root), counts: counts.into() };
        let call = self.call(mode, site, op, Some(src.dtype()));
        self.check_member(&call, "root", root)?;
        self.check_counts(&call, "counts", counts)?;
        call.require_len("src", src.len(), counts[self.member])?;
        call.require_at_root("dst", dst.is_some(), root == self.member)?;
        if let Some(dst) = &dst {
            call.require_len("dst", dst.len(), counts.iter().sum())?;
            call.require_dtype(src.dtype(), dst.dtype())?;
        }
        let meeting = self.meet(call, Operand::source(src))?;
        if let Some(dst) = dst {
            by_dtype!(dst, T => {
                let dst = dst.typed::<T>();
                for (member, operand) in meeting.operands().enumerate() {
                    // SAFETY: sources are only read while the meeting lasts.
                    dst[run(counts, member)].copy_from_slice(unsafe { operand.read(0..counts[member]) });
                }
            });
        }
        Ok(())
    }
}
