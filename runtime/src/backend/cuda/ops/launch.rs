//! What launches have in common.

use crate::backend::cuda::gpu::done;
use crate::backend::cuda::{Gpu, Grid};
use crate::backend::{DType, Queue, View, ViewMut};

/// Threads of a block of a kernel that has no reason for another number.
pub(super) const THREADS: u32 = 256;

/// Blocks per multiprocessor of a kernel that loops over what is left: enough to keep the memory busy to the end.
const BLOCKS_PER_MULTIPROCESSOR: u64 = 32;

/// The most blocks of a kernel that loops over what is left.
pub(super) fn most_blocks(gpu: &Gpu) -> u64 {
    u64::from(gpu.driver().properties().multiprocessors.max(1)) * BLOCKS_PER_MULTIPROCESSOR
}

/// Blocks of [`THREADS`] threads that together take `items` items in turn, each thread one or more.
pub(super) fn covering(gpu: &Gpu, items: u64) -> Grid {
    let blocks = items.div_ceil(u64::from(THREADS)).min(most_blocks(gpu));
    Grid { blocks: [blocks as u32, 1, 1], threads: THREADS, shared: 0 }
}

/// The last part of the names of kernels that are compiled for one dtype of floating-point numbers.
pub(super) fn float_name(dtype: DType) -> &'static str {
    assert!(dtype != DType::U32, "kernels compute on f32 and bf16, not on u32");
    dtype.name()
}

/// The kernels' address of the elements of a view.
pub(super) fn at(view: View) -> u64 {
    view.address() as u64
}

/// Elements of a dtype that one access of 128 bits moves.
pub(super) fn wide(dtype: DType) -> usize {
    16 / dtype.bytes()
}

/// Whether vectors of `width` elements from each view's first on are aligned, to 16 bytes where they are longer.
pub(super) fn aligned(views: &[View], width: usize) -> bool {
    views.iter().all(|view| at(*view).is_multiple_of((width * view.dtype().bytes()).min(16) as u64))
}

/// The elements before the first that is aligned in all of these views, which are equally long, and the number of vectors
/// of `width` elements from there on; no vectors where none is.
pub(super) fn vectors(views: &[View], width: usize) -> [u64; 2] {
    let len = views[0].len();
    let is_aligned =
        |head: &usize| views.iter().all(|view| aligned(&[view.slice(*head..len)], width));
    let head = (0..width.min(len)).find(is_aligned);
    match head {
        Some(head) => [head as u64, ((len - head) / width) as u64],
        None => [0, 0],
    }
}

/// Copies all elements; both views have one length and dtype.
pub(super) fn copy(gpu: &Gpu, src: View, dst: ViewMut) {
    let bytes = src.len() * src.dtype().bytes();
    if bytes > 0 {
        let stream = gpu.stream(Queue::Compute);
        // SAFETY: the views are as long as each other, and one is exclusive.
        done(unsafe { gpu.driver().copy(stream, at(dst.as_view()), at(src), bytes) });
    }
}
