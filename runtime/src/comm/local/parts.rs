//! What a member does with the operands of a meeting: copies and sums, done by itself or queued on its device.

use std::ops::Range;

use half::bf16;

use crate::backend::{DType, RowPart, Runs};
use crate::comm::{Blocks, ReduceOp};

use super::kernels::{Addend, BLOCK};
use super::lane::Attendance;
use super::operand::{Lent, Operand};

impl Attendance<'_> {
    /// Copies `range` of the operand of `member` to `dst`, from its element `at` on.
    ///
    /// # Safety
    /// While the meeting lasts, if nobody else uses the place in `dst` or writes to `range` of the operand, and the two have
    /// one dtype.
    pub unsafe fn copy(&self, member: usize, range: Range<usize>, dst: &Lent, at: usize) {
        let bytes = range.len() * dst.dtype().bytes();
        let to = dst.run(at..at + range.len());
        let from = self.operand(member).run(dst.dtype(), range);
        match self.queue() {
            _ if bytes == 0 => {}
            // SAFETY: both lie inside their memory, and the caller promises the rest.
            None => unsafe { to.copy_from_nonoverlapping(from, bytes) },
            // SAFETY: as above; the queue has waited for all operands.
            Some(queue) => unsafe { queue.device.copy(queue.queue, to, from, bytes) },
        }
    }

    /// Combines `range` of all operands, in the order of members (`((m0 + m1) + m2) + ..`), into `dst`, from its element
    /// `at` on. `dst` may be one of the operands; then `at` is where `range` begins.
    ///
    /// # Safety
    /// While the meeting lasts, if nobody else uses the place in `dst` or writes to `range` of any operand, and all have the
    /// dtype of `dst`.
    pub unsafe fn combine(&self, op: ReduceOp, range: Range<usize>, dst: &Lent, at: usize) {
        let dtype = dst.dtype();
        if range.is_empty() {
            return;
        }
        let Some(queue) = self.queue() else {
            // SAFETY: as the caller promises. Of integers, every reduction is refused before.
            return match dtype {
                DType::Bf16 => unsafe { self.combine_on_host::<bf16>(op, range, dst, at) },
                DType::F32 | DType::U32 => unsafe {
                    self.combine_on_host::<f32>(op, range, dst, at)
                },
            };
        };
        let to = dst.run(at..at + range.len());
        let sources = self.operands().map(|operand| operand.run(dtype, range.clone()));
        let (sources, len) = (sources.collect::<Vec<_>>(), range.len());
        // SAFETY: all lie inside their memory, and the queue has waited for all operands.
        unsafe { queue.device.combine(queue.queue, op, dtype, to, &sources, len) };
    }

    /// Puts the rows of a tensor together from the operands of all members.
    ///
    /// # Safety
    /// As [`copy`](Self::copy), for all operands and all of `dst`.
    pub unsafe fn join(&self, blocks: &Blocks, dst: &Lent) {
        let dtype = dst.dtype();
        match self.queue() {
            Some(queue) if blocks.outer > 1 => {
                let part = |(operand, len): (&Operand, &usize)| RowPart {
                    address: operand.run(dtype, 0..blocks.outer * len) as u64,
                    bytes: len * dtype.bytes(),
                };
                let parts: Vec<RowPart> = self.operands().zip(&*blocks.lens).map(part).collect();
                let to = dst.run(0..blocks.total());
                // SAFETY: all lie inside their memory, and the queue has waited for all operands.
                unsafe { queue.device.join_rows(queue.queue, blocks.outer, to, &parts) };
            }
            _ => {
                for member in 0..blocks.lens.len() {
                    for (whole, own) in blocks.runs(member) {
                        // SAFETY: as the caller promises.
                        unsafe { self.copy(member, own, dst, whole.start) };
                    }
                }
            }
        }
    }

    /// Sums the part of `member` in every row of all operands into `dst`, which is none of them.
    ///
    /// # Safety
    /// As [`combine`](Self::combine).
    pub unsafe fn sum_part(&self, blocks: &Blocks, member: usize, dst: &Lent) {
        let (dtype, start, len) = (dst.dtype(), blocks.start(member), blocks.lens[member]);
        match self.queue() {
            Some(queue) if blocks.outer > 1 && len > 0 => {
                let runs = Runs { count: blocks.outer, len, distance: blocks.row() };
                let last = start + (blocks.outer - 1) * blocks.row() + len;
                let sources: Vec<*const u8> =
                    self.operands().map(|operand| operand.run(dtype, start..last)).collect();
                let to = dst.run(0..blocks.owned(member));
                let (device, queue) = (&queue.device, queue.queue);
                // SAFETY: all lie inside their memory, and the queue has waited for all operands.
                unsafe { device.combine_runs(queue, ReduceOp::Sum, dtype, to, &sources, &runs) };
            }
            _ => {
                for (whole, own) in blocks.runs(member) {
                    // SAFETY: as the caller promises.
                    unsafe { self.combine(ReduceOp::Sum, whole, dst, own.start) };
                }
            }
        }
    }

    /// # Safety
    /// As [`combine`](Self::combine), for host memory.
    unsafe fn combine_on_host<T: Addend>(
        &self,
        op: ReduceOp,
        range: Range<usize>,
        dst: &Lent,
        at: usize,
    ) {
        let is_target =
            |operand: &Operand| operand.lent().is_some_and(|lent| lent.run(0..0) == dst.run(0..0));
        let in_place = self.operands().position(is_target);
        let start = range.start;
        for block in blocks_of(range) {
            let place = block.start - start + at..block.end - start + at;
            // SAFETY: as the caller promises; none of them is the target while that is written.
            let others = || {
                self.operands().skip(1).map(|operand| unsafe { operand.read::<T>(block.clone()) })
            };
            // SAFETY: as above.
            let first = || unsafe { self.operand(0).read::<T>(block.clone()) };
            // SAFETY: as the caller promises.
            let target = || unsafe { dst.write::<T>(place.clone()) };
            match in_place {
                // The first operand is where it is added up.
                Some(0) => T::reduce(op, target(), others()),
                // Not written before all operands are read.
                Some(_) => {
                    let mut scratch = [T::ZERO; BLOCK];
                    let sum = &mut scratch[..block.len()];
                    sum.copy_from_slice(first());
                    T::reduce(op, sum, others());
                    target().copy_from_slice(sum);
                }
                None => {
                    let sum = target();
                    sum.copy_from_slice(first());
                    T::reduce(op, sum, others());
                }
            }
        }
    }

    /// `range`, in pieces to work on one after the other: on the host they stay in the first-level cache.
    pub fn pieces(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        let on_host = self.queue().is_none();
        let whole = (!on_host).then(|| range.clone());
        let blocks = on_host.then(|| blocks_of(range));
        whole.into_iter().chain(blocks.into_iter().flatten())
    }
}

/// Cuts a range into pieces that stay in the first-level cache.
fn blocks_of(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(BLOCK).map(move |start| start..(start + BLOCK).min(end))
}

/// The part of `count` elements of `dtype` that `member` works on: whole cache lines, so that no two write to one.
pub fn part(dtype: DType, count: usize, members: usize, member: usize) -> Range<usize> {
    let line = 64 / dtype.bytes();
    let lines = count.div_ceil(line);
    let bound = |member: usize| (lines * member / members * line).min(count);
    bound(member)..bound(member + 1)
}

/// The run of `member` in parts that lie one after the other.
pub fn run(counts: &[usize], member: usize) -> Range<usize> {
    let start = counts[..member].iter().sum();
    start..start + counts[member]
}
