//! Skeleton.

use crate::backend::cuda::Gpu;
use crate::backend::{DType, Queue, ReduceOp};

/// # Safety
/// As [`Device::combine`](crate::backend::Device::combine).
pub unsafe fn combine(
    gpu: &Gpu,
    queue: Queue,
    op: ReduceOp,
    dtype: DType,
    dst: *mut u8,
    srcs: &[*const u8],
    len: usize,
) {
    todo!()
}
