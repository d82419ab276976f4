//! Copies and reductions between the operands of all members, by the host or on a stream of the device.

use std::ops::Range;

use half::bf16;

use crate::reduction::{BLOCK, Reducible, blocks_of};
use crate::{Blocks, ReduceOp};
use meshwright_backend::{DType, RowPart, Runs};

use super::operand::{LentMemory, MemberOperand};
use super::participation::Participation;

impl Participation<'_> {
    /// Copies `range` of the operand of `member` to `dst`, starting at its element `at`.
    ///
    /// # Safety
    /// No other thread or stream may use the target range of `dst`, or write to `range` of the operand, during the
    /// participation, and both must have one dtype.
    pub unsafe fn copy_run(&self, member: usize, range: Range<usize>, dst: &LentMemory, at: usize) {
        let bytes = range.len() * dst.dtype().bytes();
        let to = dst.run_address(at..at + range.len());
        let from = self.operand(member).run_address(dst.dtype(), range);
        match self.stream() {
            _ if bytes == 0 => {}
            // SAFETY: both ranges are in bounds, and the caller guarantees the rest.
            None => unsafe { to.copy_from_nonoverlapping(from, bytes) },
            // SAFETY: as above; the stream has waited for all operands.
            Some(stream) => unsafe { stream.device.copy(stream.stream, to, from, bytes) },
        }
    }

    /// Reduces `range` of all operands, in the order of group ranks (`((m0 + m1) + m2) + ..`), into `dst`, starting at
    /// its element `at`. `dst` may be one of the operands; then `at` is the start of `range`.
    ///
    /// # Safety
    /// No other thread or stream may use the target range of `dst`, or write to `range` of any operand, during the
    /// participation, and all must have the dtype of `dst`.
    pub unsafe fn combine_runs(
        &self,
        op: ReduceOp,
        range: Range<usize>,
        dst: &LentMemory,
        at: usize,
    ) {
        let dtype = dst.dtype();
        if range.is_empty() {
            return;
        }
        let Some(stream) = self.stream() else {
            // SAFETY: as the caller guarantees. Reductions of integers are refused before.
            return match dtype {
                DType::Bf16 => unsafe { self.combine_on_host::<bf16>(op, range, dst, at) },
                DType::F64 => unsafe { self.combine_on_host::<f64>(op, range, dst, at) },
                DType::F32 | DType::U32 => unsafe {
                    self.combine_on_host::<f32>(op, range, dst, at)
                },
            };
        };
        let to = dst.run_address(at..at + range.len());
        let sources = self.operands().map(|operand| operand.run_address(dtype, range.clone()));
        let (sources, len) = (sources.collect::<Vec<_>>(), range.len());
        // SAFETY: all ranges are in bounds, and the stream has waited for all operands.
        unsafe { stream.device.combine(stream.stream, op, dtype, to, &sources, len) };
    }

    /// Joins the rows of a tensor from the operands of all members.
    ///
    /// # Safety
    /// As [`copy_run`](Self::copy_run), for all operands and all of `dst`.
    pub unsafe fn join_rows(&self, blocks: &Blocks, dst: &LentMemory) {
        let dtype = dst.dtype();
        match self.stream() {
            Some(stream) if blocks.outer > 1 => {
                let part = |(operand, len): (&MemberOperand, &usize)| RowPart {
                    address: operand.run_address(dtype, 0..blocks.outer * len) as u64,
                    bytes: len * dtype.bytes(),
                };
                let parts: Vec<RowPart> = self.operands().zip(&*blocks.lens).map(part).collect();
                let to = dst.run_address(0..blocks.total());
                // SAFETY: all ranges are in bounds, and the stream has waited for all operands.
                unsafe { stream.device.join_rows(stream.stream, blocks.outer, to, &parts) };
            }
            _ => {
                for member in 0..blocks.lens.len() {
                    for (whole, own) in blocks.runs(member) {
                        // SAFETY: as the caller guarantees.
                        unsafe { self.copy_run(member, own, dst, whole.start) };
                    }
                }
            }
        }
    }

    /// Sums the part of `member` in every row of all operands into `dst`, which is not one of them.
    ///
    /// # Safety
    /// As [`combine_runs`](Self::combine_runs).
    pub unsafe fn sum_part(&self, blocks: &Blocks, member: usize, dst: &LentMemory) {
        let (dtype, start, len) = (dst.dtype(), blocks.start(member), blocks.lens[member]);
        match self.stream() {
            Some(stream) if blocks.outer > 1 && len > 0 => {
                let runs = Runs { count: blocks.outer, len, distance: blocks.row() };
                let last = start + (blocks.outer - 1) * blocks.row() + len;
                let sources: Vec<*const u8> = self
                    .operands()
                    .map(|operand| operand.run_address(dtype, start..last))
                    .collect();
                let to = dst.run_address(0..blocks.owned(member));
                let (device, stream) = (&stream.device, stream.stream);
                // SAFETY: all ranges are in bounds, and the stream has waited for all operands.
                unsafe { device.combine_runs(stream, ReduceOp::Sum, dtype, to, &sources, &runs) };
            }
            _ => {
                for (whole, own) in blocks.runs(member) {
                    // SAFETY: as the caller guarantees.
                    unsafe { self.combine_runs(ReduceOp::Sum, whole, dst, own.start) };
                }
            }
        }
    }

    /// # Safety
    /// As [`combine_runs`](Self::combine_runs), for host memory.
    unsafe fn combine_on_host<T: Reducible>(
        &self,
        op: ReduceOp,
        range: Range<usize>,
        dst: &LentMemory,
        at: usize,
    ) {
        let is_target = |operand: &MemberOperand| {
            operand
                .lent_memory()
                .is_some_and(|lent| lent.run_address(0..0) == dst.run_address(0..0))
        };
        let in_place = self.operands().position(is_target);
        let start = range.start;
        for block in blocks_of(range) {
            let target_range = block.start - start + at..block.end - start + at;
            // SAFETY: as the caller guarantees; none of them is the target while it is written.
            let others = || {
                self.operands().skip(1).map(|operand| unsafe { operand.read::<T>(block.clone()) })
            };
            // SAFETY: as above.
            let first = || unsafe { self.operand(0).read::<T>(block.clone()) };
            // SAFETY: as the caller guarantees.
            let target = || unsafe { dst.write::<T>(target_range.clone()) };
            match in_place {
                // The first operand is the accumulator.
                Some(0) => T::reduce(op, target(), others()),
                // The target must not be written before all operands are read.
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

    /// Splits `range` into pieces to process one after the other: on the host they fit in the first-level cache.
    pub fn pieces(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        let on_host = self.stream().is_none();
        let whole = (!on_host).then(|| range.clone());
        let blocks = on_host.then(|| blocks_of(range));
        whole.into_iter().chain(blocks.into_iter().flatten())
    }
}
