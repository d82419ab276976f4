//! The second stage of sums over rows.

use super::launch::most_blocks;
use crate::backend::cuda::gpu::args;
use crate::backend::cuda::kernels::PARTIALS;
use crate::backend::cuda::{Gpu, Grid};
use crate::backend::{DType, ViewMut};

/// `out (+)=` the sum of the rows of `parts`, f32 `[rows, out.len()]`, in an order that depends on sizes alone.
///
/// # Safety
/// `parts` is the address of so many elements of the [workspace](Gpu::workspace).
pub(super) unsafe fn add_partials(
    gpu: &Gpu,
    out: ViewMut,
    parts: u64,
    rows: u64,
    accumulate: bool,
) {
    assert_eq!(out.dtype(), DType::F32, "sums over rows are f32");
    let cols = out.len() as u64;
    let blocks = cols.div_ceil(32).min(most_blocks(gpu));
    let grid = Grid { blocks: [blocks as u32, 1, 1], threads: 1024, shared: 0 };
    // SAFETY: as the caller promises, and `out` has `cols` elements.
    unsafe {
        gpu.launch(
            (&PARTIALS, "add_partials"),
            grid,
            args![out.address() as u64, parts, rows, cols, u32::from(accumulate)],
        )
    };
}
