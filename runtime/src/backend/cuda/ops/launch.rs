//! What launches have in common.

use crate::backend::cuda::{Gpu, Grid};
use crate::backend::{DType, View};

/// Threads of a block of a kernel that has no reason for another number.
pub(super) const THREADS: u32 = 256;

/// Blocks per multiprocessor of a kernel that loops over what is left: enough to keep the memory busy to the end.
const BLOCKS_PER_MULTIPROCESSOR: u64 = 32;

/// Blocks of [`THREADS`] threads that together take `items` items in turn, each thread one or more.
pub(super) fn covering(gpu: &Gpu, items: u64) -> Grid {
    let most = u64::from(gpu.driver().properties().multiprocessors) * BLOCKS_PER_MULTIPROCESSOR;
    let blocks = items.div_ceil(u64::from(THREADS)).min(most.max(1));
    Grid { blocks: [blocks as u32, 1, 1], threads: THREADS, shared: 0 }
}

/// The last part of the names of kernels that are compiled for one dtype of floating-point numbers.
pub(super) fn float_name(dtype: DType) -> &'static str {
    assert!(dtype != DType::U32, "kernels that calculate take f32 or bf16");
    dtype.name()
}

/// The kernels' address of the elements of a view.
pub(super) fn at(view: View) -> u64 {
    view.address() as u64
}

/// Whether vectors of `width` elements from each view's first on are aligned, to 16 bytes where they are longer.
pub(super) fn aligned<const N: usize>(views: [View; N], width: usize) -> bool {
    views.iter().all(|view| at(*view) % (width * view.dtype().bytes()).min(16) as u64 == 0)
}
