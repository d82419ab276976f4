//! The second stage of sums over rows.

use bytemuck::{Pod, Zeroable};

use super::launch::{covering, most_blocks};
use crate::gpu::args;
use crate::kernels::PARTIALS;
use crate::{GpuContext, Grid};
use meshwright_backend::{DType, LeafGrad};

/// Maximum sums per launch, as in `kernels/partials.cu`.
const MOST_SUMS: usize = 2;

/// Maximum rows whose loads one thread issues before it needs the first.
const FEW_ROWS: u64 = 8;

/// Parameter of the kernels.
#[derive(Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
struct PartialSumParams {
    out: [u64; MOST_SUMS],
    accumulate: [u32; MOST_SUMS],
}

/// Writes or accumulates into each of `sums`, which are equally long, the sum of the rows of its `parts`, in an order
/// that depends on sizes alone. The parts of each sum are f32 `[rows, cols]`, contiguous for all sums.
///
/// # Safety
/// `parts` is the address of this many elements of the [workspace](GpuContext::workspace).
pub(super) unsafe fn add_partials<'a>(
    gpu: &GpuContext,
    sums: impl IntoIterator<Item = LeafGrad<'a>>,
    parts: u64,
    rows: u64,
) {
    let (mut of, mut count, mut cols) = (PartialSumParams::default(), 0, 0);
    for LeafGrad { view, accumulate } in sums {
        assert_eq!(view.dtype(), DType::F32, "sums over rows are f32");
        assert!(count == 0 || view.len() == cols, "sums of one launch are equally long");
        (of.out[count], of.accumulate[count]) = (view.address() as u64, u32::from(accumulate));
        (count, cols) = (count + 1, view.len());
    }
    if count == 0 || cols == 0 {
        return;
    }
    let cols = cols as u64;
    let (name, mut grid) = if rows <= FEW_ROWS {
        ("add_few_partials", covering(gpu, cols))
    } else {
        let blocks = cols.div_ceil(32).min(most_blocks(gpu));
        ("add_partials", Grid { blocks: [blocks as u32, 1, 1], threads: 1024, shared: 0 })
    };
    grid.blocks[1] = count as u32;
    // SAFETY: as the caller promises, and each of the sums has `cols` elements.
    unsafe { gpu.launch((&PARTIALS, name), grid, args![of, parts, rows, cols]) };
}
