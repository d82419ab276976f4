//! Sizes of kernels over rows (`kernels/row.cuh`).

use super::launch::{THREADS, aligned, most_blocks, wide};
use crate::backend::cuda::{Gpu, Grid};
use crate::backend::{DType, View};

/// Lanes of the smallest group that works on a row.
const WARP: u64 = 32;

/// How a kernel goes over rows.
pub(super) struct RowPlan {
    /// What the kernel's name has before the dtype: nothing where rows are cut in vectors that are kept in registers, `any_`
    /// where they are read element by element, as often as they are needed.
    pub form: &'static str,
    /// Lanes that work on a row together.
    pub lanes: u32,
    /// Threads of a block.
    pub threads: u32,
}

impl RowPlan {
    /// For rows of `cols` elements that begin where these views do. Lanes of the kernel keep `kept` vectors at most, and
    /// its blocks have `most_threads` threads at most, a power of two.
    pub fn new(
        dtype: DType,
        cols: usize,
        views: &[View],
        kept: usize,
        most_threads: u32,
    ) -> RowPlan {
        let width = wide(dtype);
        let vectors = cols.is_multiple_of(width) && aligned(views, width);
        let lanes = cols.div_ceil(width * kept).next_power_of_two().max(WARP as usize);
        if vectors && lanes <= most_threads as usize {
            RowPlan::of_lanes("", lanes as u32)
        } else {
            let lanes = if cols <= 8 * WARP as usize { WARP as u32 } else { THREADS };
            RowPlan::of_lanes("any_", lanes)
        }
    }

    /// With `lanes` lanes, a power of two from 32 on. Warps share a block, so that a multiprocessor is not full of blocks too early.
    pub fn of_lanes(form: &'static str, lanes: u32) -> RowPlan {
        let threads = if u64::from(lanes) == WARP { THREADS } else { lanes };
        RowPlan { form, lanes, threads }
    }

    /// Rows that a block works on at one time.
    fn groups_of_block(&self) -> u64 {
        u64::from(self.threads / self.lanes)
    }

    /// Blocks for `rows` rows whose results do not depend on which group works on them.
    pub fn grid(&self, gpu: &Gpu, rows: usize) -> Grid {
        let most = most_blocks(gpu) * u64::from(THREADS.div_ceil(self.threads));
        self.blocks((rows as u64).div_ceil(self.groups_of_block()).min(most))
    }

    /// Blocks for `rows` rows of which each group makes sums over its rows, and the number of these groups. Both depend on
    /// sizes alone, and so does the order of the sums.
    pub fn summing_grid(&self, rows: usize) -> (Grid, u64) {
        /// Threads that keep the memory of today's largest device busy, with the registers that sums take.
        const ALL_THREADS: u64 = 1 << 16;
        /// Rows of a group: the sums are to stay a small part of what is read.
        const ROWS: u64 = 4;
        let most = ALL_THREADS / u64::from(self.threads);
        let blocks = (rows as u64).div_ceil(ROWS * self.groups_of_block()).clamp(1, most);
        (self.blocks(blocks), blocks * self.groups_of_block())
    }

    fn blocks(&self, blocks: u64) -> Grid {
        Grid { blocks: [blocks as u32, 1, 1], threads: self.threads, shared: 0 }
    }
}
