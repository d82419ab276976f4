//! Grid sizes, alignment and names shared by launches.

use crate::driver::{DriverCalls, unwrap_call};
use crate::{GpuContext, Grid};
use meshwright_backend::{DType, StreamKind, View, ViewMut};

/// Default threads per block.
pub(super) const THREADS: u32 = 256;

/// Blocks per multiprocessor of a grid-stride loop: enough to keep the memory busy to the end.
const BLOCKS_PER_MULTIPROCESSOR: u64 = 32;

/// Returns the maximum number of blocks of a grid-stride loop.
pub(super) fn most_blocks(gpu: &GpuContext) -> u64 {
    u64::from(gpu.driver().properties().multiprocessors.max(1)) * BLOCKS_PER_MULTIPROCESSOR
}

/// Returns the grid of a grid-stride loop over `items` items, with [`THREADS`] threads per block.
pub(super) fn covering(gpu: &GpuContext, items: u64) -> Grid {
    let blocks = items.div_ceil(u64::from(THREADS)).min(most_blocks(gpu));
    Grid { blocks: [blocks as u32, 1, 1], threads: THREADS, shared: 0 }
}

/// Returns the suffix of the names of kernels that are compiled for one floating-point dtype.
pub(super) fn float_name(dtype: DType) -> &'static str {
    assert!(
        matches!(dtype, DType::F32 | DType::Bf16),
        "kernels compute on f32 and bf16, not on {dtype}"
    );
    dtype.name()
}

/// Returns the device address of the elements of a view.
pub(super) fn address(view: View) -> u64 {
    view.address() as u64
}

/// Returns the number of elements of a dtype in a 128-bit access.
pub(super) fn vector_width(dtype: DType) -> usize {
    16 / dtype.bytes()
}

/// Returns true if vectors of `width` elements from the start of each view are aligned to their size, at most 16 bytes.
pub(super) fn aligned(views: &[View], width: usize) -> bool {
    views
        .iter()
        .all(|view| address(*view).is_multiple_of((width * view.dtype().bytes()).min(16) as u64))
}

/// Returns the number of elements before the first that is aligned in all of these equally long views, and the number
/// of vectors of `width` elements from there on; no vectors if no element is.
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
pub(super) fn copy(gpu: &GpuContext, src: View, dst: ViewMut) {
    let bytes = src.len() * src.dtype().bytes();
    if bytes > 0 {
        let stream = gpu.stream(StreamKind::Compute);
        // SAFETY: the views are equally long, and one is exclusive.
        unwrap_call(unsafe {
            gpu.driver().copy(stream, address(dst.as_view()), address(src), bytes)
        });
    }
}

/// Checks that an operand has these elements.
pub(super) fn check_operand(name: &str, view: View, dtype: DType, len: usize) {
    assert!(view.dtype() == dtype && view.len() == len, "`{name}` has {len} elements of {dtype}");
}

/// Converts a number that kernels take in 32 bits.
pub(super) fn to_u32(n: usize) -> u32 {
    u32::try_from(n).expect("experts and choices are counted in 32 bits")
}
