//! The collectives themselves: what each member does with the operands of a meeting.

use std::ops::Range;
use std::sync::Arc;

use crate::backend::{DType, View, ViewMut};
use crate::comm::call::{Call, Op};
use crate::comm::stats::Counters;
use crate::comm::{Blocks, CommError, ReduceOp, Site};

use super::group::Group;
use super::kernels::{BLOCK, fold};
use super::lane::{Attendance, Post};
use super::operand::{COPY_LIMIT, Lent, Operand};

/// One rank in one group.
pub struct Seat {
    pub group: Arc<Group>,
    /// Index of the rank in the group.
    pub member: usize,
    pub counters: Arc<Counters>,
}

/// Which lane a call takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Synchronous,
    Asynchronous,
}

type Outcome = Result<(), CommError>;

/// Runs the body with `T` as the element type of a view.
macro_rules! by_dtype {
    ($view:ident, $T:ident => $body:block) => {{
        let mut $view = $view;
        match $view.dtype() {
            DType::F32 => {
                type $T = f32;
                $body
            }
            DType::U32 => {
                type $T = u32;
                $body
            }
        }
    }};
}

impl Seat {
    pub fn size(&self) -> usize {
        self.group.members.len()
    }

    pub fn world_rank(&self) -> usize {
        self.group.members[self.member]
    }

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
        self.check_blocks(&call, blocks)?;
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
        self.check_blocks(&call, blocks)?;
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
        site: &Site,
        src: View<'_>,
        dst: ViewMut<'_>,
        send: &[usize],
        recv: &[usize],
    ) -> Outcome {
        let op = Op::AllToAll { send: send.into(), recv: recv.into() };
        let call = self.call(Mode::Synchronous, site, op, Some(src.dtype()));
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

    pub fn broadcast(&self, site: &Site, root: usize, dst: ViewMut<'_>) -> Outcome {
        let op = Op::Broadcast { root: self.world_root(root), count: dst.len() };
        let call = self.call(Mode::Synchronous, site, op, Some(dst.dtype()));
        self.check_member(&call, "root", root)?;
        self.counters.count(self.shared(dst.len() * dst.dtype().bytes()));
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

    pub fn reduce(&self, site: &Site, root: usize, op: ReduceOp, mut data: ViewMut<'_>) -> Outcome {
        let count = data.len();
        let signature = Op::Reduce { root: self.world_root(root), op, count };
        let call = self.call(Mode::Synchronous, site, signature, Some(data.dtype()));
        call.require_f32()?;
        self.check_member(&call, "root", root)?;
        let bytes = count * data.dtype().bytes();
        self.counters.count(self.shared(bytes));
        if bytes <= COPY_LIMIT {
            let post = Operand::source(data.as_view());
            let meeting = self.meet(call, post)?;
            if root == self.member {
                // SAFETY: small operands are copies.
                unsafe { reduce_range(&meeting, op, 0..count, data.typed()) };
            }
            return Ok(());
        }
        let meeting = self.meet(call, Operand::Lent(Lent::target(&mut data)))?;
        let Some(target) = meeting.operand(root).lent() else { return Ok(()) };
        let mut scratch = [0.0; BLOCK];
        for block in blocks_of(part(count, self.size(), self.member)) {
            let sum = &mut scratch[..block.len()];
            // SAFETY: the operands are lent until the meeting parts, and of each this member alone touches its part.
            unsafe {
                reduce_range(&meeting, op, block.clone(), sum);
                target.write::<f32>(block).copy_from_slice(sum);
            }
        }
        Ok(())
    }

    pub fn scatter(
        &self,
        site: &Site,
        root: usize,
        src: Option<View<'_>>,
        dst: ViewMut<'_>,
        counts: &[usize],
    ) -> Outcome {
        let op = Op::Scatter { root: self.world_root(root), counts: counts.into() };
        let call = self.call(Mode::Synchronous, site, op, Some(dst.dtype()));
        self.check_member(&call, "root", root)?;
        self.check_counts(&call, "counts", counts)?;
        call.require_len("dst", dst.len(), counts[self.member])?;
        call.require_at_root("src", src.is_some(), root == self.member)?;
        let mut sent = 0;
        if let Some(src) = src {
            call.require_len("src", src.len(), counts.iter().sum())?;
            call.require_dtype(src.dtype(), dst.dtype())?;
            sent = src.len() - counts[self.member];
        }
        self.counters.count(sent * dst.dtype().bytes());
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
        site: &Site,
        root: usize,
        src: View<'_>,
        dst: Option<ViewMut<'_>>,
        counts: &[usize],
    ) -> Outcome {
        let op = Op::Gather { root: self.world_root(root), counts: counts.into() };
        let call = self.call(Mode::Synchronous, site, op, Some(src.dtype()));
        self.check_member(&call, "root", root)?;
        self.check_counts(&call, "counts", counts)?;
        call.require_len("src", src.len(), counts[self.member])?;
        call.require_at_root("dst", dst.is_some(), root == self.member)?;
        if let Some(dst) = &dst {
            call.require_len("dst", dst.len(), counts.iter().sum())?;
            call.require_dtype(src.dtype(), dst.dtype())?;
        }
        let sent = if root == self.member { 0 } else { src.len() };
        self.counters.count(sent * src.dtype().bytes());
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

    pub fn barrier(&self, site: &Site) -> Outcome {
        self.counters.count(0);
        self.meet(self.call(Mode::Synchronous, site, Op::Barrier, None), Operand::None).map(drop)
    }

    pub fn send(&self, site: &Site, to: usize, data: View<'_>) -> Outcome {
        let op = Op::Send { to: self.world_root(to), count: data.len() };
        let call = self.call(Mode::Synchronous, site, op, Some(data.dtype()));
        self.check_member(&call, "to", to)?;
        self.counters.count(data.bytes().len());
        let call = self.note(call);
        self.group.mailboxes[to].send(&self.group, (self.member, to), &call, data)
    }

    pub fn recv(&self, site: &Site, from: usize, data: ViewMut<'_>) -> Outcome {
        let op = Op::Recv { from: self.world_root(from), count: data.len() };
        let call = self.call(Mode::Synchronous, site, op, Some(data.dtype()));
        self.check_member(&call, "from", from)?;
        self.counters.count(0);
        let call = self.note(call);
        let mailbox = &self.group.mailboxes[self.member];
        mailbox.recv(&self.group, (from, self.member), &call, data, &self.counters)
    }

    fn call(&self, mode: Mode, site: &Site, op: Op, dtype: Option<DType>) -> Call {
        let asynchronous = mode == Mode::Asynchronous;
        Call { op, dtype, axes: self.group.axes, asynchronous, site: site.clone() }
    }

    fn note(&self, call: Call) -> Arc<Call> {
        let call = Arc::new(call);
        self.group.roster.note_call(self.world_rank(), &call);
        call
    }

    fn meet(&self, call: Call, operand: Operand) -> Result<Attendance<'_>, CommError> {
        // The thread that waits in an asynchronous call is not the rank's own.
        let (lane, blocked) = match call.asynchronous {
            false => (&self.group.calls, Some(&*self.counters)),
            true => (&self.group.started, None),
        };
        let post = Post { call: self.note(call), operand };
        lane.meet(&self.group, self.member, post, blocked)
    }

    /// The share of `bytes` that the other members hold: `bytes (p-1) / p`.
    fn shared(&self, bytes: usize) -> usize {
        bytes / self.size() * (self.size() - 1)
            + bytes % self.size() * (self.size() - 1) / self.size()
    }

    /// The world rank of a member; one that does not exist is refused by `check_member`.
    fn world_root(&self, member: usize) -> usize {
        self.group.members.get(member).copied().unwrap_or(member)
    }

    fn check_member(&self, call: &Call, name: &str, member: usize) -> Outcome {
        if member < self.size() {
            return Ok(());
        }
        Err(call.refuse(format!(
            "`{name}` is {member}, but the group has the members 0 to {}",
            self.size() - 1
        )))
    }

    fn check_blocks(&self, call: &Call, blocks: &Blocks) -> Outcome {
        self.check_counts(call, "blocks", &blocks.lens)
    }

    fn check_counts(&self, call: &Call, name: &str, counts: &[usize]) -> Outcome {
        if counts.len() == self.size() {
            return Ok(());
        }
        Err(call.refuse(format!(
            "`{name}` has {} entries, but the group has {} members; give one entry per member",
            counts.len(),
            self.size()
        )))
    }
}

/// Combines `range` of all operands into `dst`, in the order of members.
///
/// # Safety
/// While the meeting lasts, if no other thread writes to `range` of any operand.
unsafe fn reduce_range(
    meeting: &Attendance<'_>,
    op: ReduceOp,
    range: Range<usize>,
    dst: &mut [f32],
) {
    let start = range.start;
    for block in blocks_of(range) {
        let dst = &mut dst[block.start - start..block.end - start];
        for (member, operand) in meeting.operands().enumerate() {
            // SAFETY: as the caller promises.
            let src = unsafe { operand.read(block.clone()) };
            match member {
                0 => dst.copy_from_slice(src),
                _ => fold(op, dst, src),
            }
        }
    }
}

/// Cuts a range into pieces that stay in the first-level cache.
fn blocks_of(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(BLOCK).map(move |start| start..(start + BLOCK).min(end))
}

/// The part of `count` elements that `member` works on: whole cache lines, so that no two write to one.
fn part(count: usize, members: usize, member: usize) -> Range<usize> {
    const LINE: usize = 64 / size_of::<f32>();
    let lines = count.div_ceil(LINE);
    let bound = |member: usize| (lines * member / members * LINE).min(count);
    bound(member)..bound(member + 1)
}

/// The run of `member` in parts that lie one after the other.
fn run(counts: &[usize], member: usize) -> Range<usize> {
    let start = counts[..member].iter().sum();
    start..start + counts[member]
}
