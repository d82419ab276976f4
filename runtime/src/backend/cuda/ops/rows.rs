//! Grids of kernels over rows (`kernels/row.cuh`).

use super::launch::{THREADS, aligned, most_blocks, vector_width};
use crate::backend::cuda::{GpuContext, Grid};
use crate::backend::{DType, View};

/// Lanes of the smallest group per row.
const WARP: u64 = 32;

/// The assignment of rows to threads of a kernel.
pub(super) struct RowPlan {
    /// The part of the kernel's name before the dtype: empty if rows are kept in registers as vectors, `any_` if they are
    /// read element by element, as often as needed.
    pub form: &'static str,
    /// Lanes per row.
    pub lanes: u32,
    /// Threads of a block.
    pub threads: u32,
}

impl RowPlan {
    /// Creates the plan for rows of `cols` elements with the alignment of these views. A lane keeps at most `kept` vectors,
    /// and a block has at most `most_threads` threads, a power of two.
    pub fn new(
        dtype: DType,
        cols: usize,
        views: &[View],
        kept: usize,
        most_threads: u32,
    ) -> RowPlan {
        let width = vector_width(dtype);
        let vectors = cols.is_multiple_of(width) && aligned(views, width);
        let lanes = cols.div_ceil(width * kept).next_power_of_two().max(WARP as usize);
        if vectors && lanes <= most_threads as usize {
            RowPlan::of_lanes("", lanes as u32)
        } else {
            let lanes = if cols <= 8 * WARP as usize { WARP as u32 } else { THREADS };
            RowPlan::of_lanes("any_", lanes)
        }
    }

    /// Creates a plan with `lanes` lanes per row, a power of two of at least 32. Rows of one warp share a block, so that the
    /// block limit of a multiprocessor does not limit occupancy.
    pub fn of_lanes(form: &'static str, lanes: u32) -> RowPlan {
        let threads = if u64::from(lanes) == WARP { THREADS } else { lanes };
        RowPlan { form, lanes, threads }
    }

    /// Returns the rows that a block processes at a time.
    fn groups_of_block(&self) -> u64 {
        u64::from(self.threads / self.lanes)
    }

    /// Returns the grid for `rows` rows whose results do not depend on the group that processes them.
    pub fn grid(&self, gpu: &GpuContext, rows: usize) -> Grid {
        let most = most_blocks(gpu) * u64::from(THREADS.div_ceil(self.threads));
        self.blocks((rows as u64).div_ceil(self.groups_of_block()).min(most))
    }

    /// Returns the grid for `rows` rows of which each group sums its rows, and the number of groups. Both depend on sizes
    /// alone, as does the order of the sums.
    pub fn summing_grid(&self, rows: usize) -> (Grid, u64) {
        /// Threads that keep the memory of the largest devices busy, at the register use of sums.
        const ALL_THREADS: u64 = 1 << 16;
        /// Minimum rows of a group, so that the partial sums are small compared to the operands.
        const ROWS: u64 = 4;
        let most = ALL_THREADS / u64::from(self.threads);
        let blocks = (rows as u64).div_ceil(ROWS * self.groups_of_block()).clamp(1, most);
        (self.blocks(blocks), blocks * self.groups_of_block())
    }

    fn blocks(&self, blocks: u64) -> Grid {
        Grid { blocks: [blocks as u32, 1, 1], threads: self.threads, shared: 0 }
    }
}
