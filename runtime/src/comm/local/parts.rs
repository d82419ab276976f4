//! Which part of an operand a member works on, and the loops over it.

use std::ops::Range;

use crate::comm::ReduceOp;

use super::kernels::{Addend, BLOCK};
use super::lane::Attendance;
use super::operand::Lent;

/// Runs the body with `T` as the element type of a view.
macro_rules! by_dtype {
    ($view:ident, $T:ident => $body:block) => {{
        let mut $view = $view;
        match $view.dtype() {
            DType::F32 => {
                type $T = f32;
                $body
            }
            DType::Bf16 => {
                type $T = half::bf16;
                $body
            }
            DType::U32 => {
                type $T = u32;
                $body
            }
        }
    }};
}

/// As `by_dtype`, for a view of floating-point numbers.
macro_rules! by_float {
    ($view:ident, $T:ident => $body:expr) => {
        match $view.dtype() {
            DType::Bf16 => {
                type $T = half::bf16;
                $body
            }
            // Of integers, every reduction is refused before.
            DType::F32 | DType::U32 => {
                type $T = f32;
                $body
            }
        }
    };
}

pub(super) use {by_dtype, by_float};

/// Combines `range` of all operands into `dst`, in the order of members: `((m0 + m1) + m2) + ..`.
///
/// # Safety
/// While the meeting lasts, if no other thread writes to `range` of any operand.
pub unsafe fn reduce_range<T: Addend>(
    meeting: &Attendance<'_>,
    op: ReduceOp,
    range: Range<usize>,
    dst: &mut [T],
) {
    let start = range.start;
    for block in blocks_of(range) {
        let dst = &mut dst[block.start - start..block.end - start];
        // SAFETY: as the caller promises.
        let mut parts = meeting.operands().map(|operand| unsafe { operand.read(block.clone()) });
        if let Some(first) = parts.next() {
            dst.copy_from_slice(first);
        }
        T::reduce(op, dst, parts);
    }
}

/// Combines `range` of all operands, in the order of members, and puts the result in the place of `target`'s.
///
/// # Safety
/// While the meeting lasts, if `target` is exclusively borrowed by its owner and no other thread uses `range` of it, or
/// writes to `range` of any operand.
pub unsafe fn reduce_range_into<T: Addend>(
    meeting: &Attendance<'_>,
    op: ReduceOp,
    range: Range<usize>,
    target: &Lent,
) {
    let mut scratch = [T::ZERO; BLOCK];
    for block in blocks_of(range) {
        let reduced = &mut scratch[..block.len()];
        // SAFETY: as the caller promises. The target may be an operand, which is not read any more when it is written.
        unsafe {
            reduce_range(meeting, op, block.clone(), reduced);
            target.write::<T>(block).copy_from_slice(reduced);
        }
    }
}

/// Cuts a range into pieces that stay in the first-level cache.
pub fn blocks_of(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(BLOCK).map(move |start| start..(start + BLOCK).min(end))
}

/// The part of `count` elements of type `T` that `member` works on: whole cache lines, so that no two write to one.
pub fn part<T>(count: usize, members: usize, member: usize) -> Range<usize> {
    let line = 64 / size_of::<T>();
    let lines = count.div_ceil(line);
    let bound = |member: usize| (lines * member / members * line).min(count);
    bound(member)..bound(member + 1)
}

/// The run of `member` in parts that lie one after the other.
pub fn run(counts: &[usize], member: usize) -> Range<usize> {
    let start = counts[..member].iter().sum();
    start..start + counts[member]
}
