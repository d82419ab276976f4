//! Which part of an operand a member works on, and the loops over it.

use std::ops::Range;

use crate::comm::ReduceOp;

use super::kernels::{BLOCK, fold};
use super::lane::Attendance;

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

pub(super) use by_dtype;

/// Combines `range` of all operands into `dst`, in the order of members.
///
/// # Safety
/// While the meeting lasts, if no other thread writes to `range` of any operand.
pub unsafe fn reduce_range(
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
pub fn blocks_of(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(BLOCK).map(move |start| start..(start + BLOCK).min(end))
}

/// The part of `count` elements that `member` works on: whole cache lines, so that no two write to one.
pub fn part(count: usize, members: usize, member: usize) -> Range<usize> {
    const LINE: usize = 64 / size_of::<f32>();
    let lines = count.div_ceil(LINE);
    let bound = |member: usize| (lines * member / members * LINE).min(count);
    bound(member)..bound(member + 1)
}

/// The run of `member` in parts that lie one after the other.
pub fn run(counts: &[usize], member: usize) -> Range<usize> {
    let start = counts[..member].iter().sum();
    start..start + counts[member]
}
