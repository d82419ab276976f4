//! The collectives in which one member, the root, has a part of its own.

use crate::backend::{View, ViewMut};
use crate::comm::call::Op;
use crate::comm::{ReduceOp, Site};

use super::operand::{Lent, Operand};
use super::parts::{part, run};
use super::seat::{Mode, Outcome, Seat};

impl Seat {
    pub fn broadcast(
        &self,
        mode: &Mode,
        site: &Site,
        root: usize,
        mut dst: ViewMut<'_>,
    ) -> Outcome {
        let op = Op::Broadcast { root: self.world_root(root), count: dst.len() };
        let call = self.call(mode, site, op, Some(dst.as_view()));
        self.check_member(&call, "root", root)?;
        let is_root = root == self.member;
        let target = Lent::target(&mut dst);
        let post = if is_root { Operand::source(dst.as_view()) } else { Operand::None };
        self.meet(call, mode, Some(dst.as_view()), post, |meeting| {
            if !is_root {
                // SAFETY: the root's memory is only read while the meeting lasts, and `dst` is exclusive.
                unsafe { meeting.copy(root, 0..target.len(), &target, 0) };
            }
        })
    }

    pub fn reduce(
        &self,
        mode: &Mode,
        site: &Site,
        root: usize,
        op: ReduceOp,
        mut data: ViewMut<'_>,
    ) -> Outcome {
        let (count, dtype) = (data.len(), data.dtype());
        let signature = Op::Reduce { root: self.world_root(root), op, count };
        let call = self.call(mode, site, signature, Some(data.as_view()));
        call.require_float()?;
        self.check_member(&call, "root", root)?;
        let (target, operand) = (Lent::target(&mut data), Operand::target(&mut data));
        self.meet(call, mode, Some(data.as_view()), operand, |meeting| {
            match meeting.operand(root).lent() {
                Some(target) => {
                    let part = part(dtype, count, self.size(), self.member);
                    let start = part.start;
                    // SAFETY: the operands are lent until the meeting parts, and of each this member alone touches its
                    // part.
                    unsafe { meeting.combine(op, part, target, start) };
                }
                // SAFETY: small operands are copies.
                None if root == self.member => unsafe {
                    meeting.combine(op, 0..count, &target, 0);
                },
                None => {}
            }
        })
    }

    pub fn scatter(
        &self,
        mode: &Mode,
        site: &Site,
        root: usize,
        src: Option<View<'_>>,
        mut dst: ViewMut<'_>,
        counts: &[usize],
    ) -> Outcome {
        let op = Op::Scatter { root: self.world_root(root), counts: counts.into() };
        let call = self.call(mode, site, op, Some(dst.as_view()));
        let part = dst.as_view();
        call.require_parts(root, self.member, counts, self.size(), ("dst", part), ("src", src))?;
        src.map_or(Ok(()), |src| call.require_alike(src, part))?;
        let target = Lent::target(&mut dst);
        let post = src.map_or(Operand::None, Operand::source);
        self.meet(call, mode, Some(dst.as_view()), post, |meeting| {
            // SAFETY: the root's memory is only read while the meeting lasts, and `dst` is exclusive.
            unsafe { meeting.copy(root, run(counts, self.member), &target, 0) };
        })
    }

    pub fn gather(
        &self,
        mode: &Mode,
        site: &Site,
        root: usize,
        src: View<'_>,
        mut dst: Option<ViewMut<'_>>,
        counts: &[usize],
    ) -> Outcome {
        let op = Op::Gather { root: self.world_root(root), counts: counts.into() };
        let call = self.call(mode, site, op, Some(src));
        let whole = dst.as_ref().map(ViewMut::as_view);
        call.require_parts(root, self.member, counts, self.size(), ("src", src), ("dst", whole))?;
        whole.map_or(Ok(()), |whole| call.require_alike(src, whole))?;
        let target = dst.as_mut().map(Lent::target);
        self.meet(call, mode, Some(src), Operand::source(src), |meeting| {
            let Some(target) = target else { return };
            for member in 0..self.size() {
                let to = run(counts, member);
                // SAFETY: sources are only read while the meeting lasts, and `dst` is exclusive.
                unsafe { meeting.copy(member, 0..counts[member], &target, to.start) };
            }
        })
    }
}
