//! Grids of kernels over rows (`kernels/row.cuh`).

use super::launch::{THREADS, aligned, most_blocks, vector_width};
use crate::{GpuContext, Grid};
use meshwright_backend::{DType, View};

/// Lanes of the smallest group per row.
const WARP: u64 = 32;

/// The form of kernels that read rows element by element, as often as needed.
const ANY: &str = "any_";

/// A kernel whose lanes each process some vectors of a row.
pub(super) struct RowKernel {
    /// The part of its name before the dtype.
    pub form: &'static str,
    /// Maximum vectors of a row per lane.
    pub vectors: usize,
    /// Maximum lanes per row, a power of two.
    pub most_lanes: u32,
    /// Threads of a block of rows that have one warp each.
    pub warp_threads: u32,
    /// Threads that keep the memory of the largest devices busy, all resident at the register use of this kernel. Sums
    /// over rows depend on it.
    pub resident: u64,
}

impl RowKernel {
    /// Creates a kernel of at most 512 lanes per row, and half of the threads of a multiprocessor.
    pub const fn new(form: &'static str, vectors: usize) -> RowKernel {
        RowKernel { form, vectors, most_lanes: 512, warp_threads: THREADS, resident: 1 << 16 }
    }

    /// Returns the lanes for rows of this many vectors: a power of two, of at least a warp.
    fn lanes(&self, vectors: usize) -> usize {
        vectors.div_ceil(self.vectors).next_power_of_two().max(WARP as usize)
    }

    /// Returns the number of vectors that the lanes of such a row can hold.
    fn capacity(&self, vectors: usize) -> usize {
        self.lanes(vectors) * self.vectors
    }

    fn threads(&self, lanes: usize) -> u32 {
        if lanes as u64 == WARP { self.warp_threads } else { lanes as u32 }
    }

    fn has_room(&self, vectors: usize) -> bool {
        self.lanes(vectors) <= self.most_lanes as usize
    }
}

/// The assignment of rows to threads of a kernel.
pub(super) struct RowPlan {
    /// The part of the kernel's name before the dtype: that of the [`RowKernel`], or [`ANY`].
    pub form: &'static str,
    /// Lanes per row.
    pub lanes: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Threads that keep the memory of the largest devices busy, as of the [`RowKernel`].
    resident: u64,
}

impl RowPlan {
    /// Creates the plan for rows of `cols` elements with the alignment of these views: of `kernels`, the first one
    /// whose lanes leave the least room unused.
    pub fn new(dtype: DType, cols: usize, views: &[View], kernels: &[RowKernel]) -> RowPlan {
        let width = vector_width(dtype);
        let are_vectors = cols.is_multiple_of(width) && aligned(views, width);
        let vectors = cols / width;
        let possible = kernels.iter().filter(|kernel| are_vectors && kernel.has_room(vectors));
        let Some(kernel) = possible.min_by_key(|kernel| kernel.capacity(vectors)) else {
            return RowPlan::of_lanes(
                ANY,
                if cols <= 8 * WARP as usize { WARP as u32 } else { THREADS },
            );
        };
        let lanes = kernel.lanes(vectors);
        let threads = kernel.threads(lanes);
        let (form, resident) = (kernel.form, kernel.resident);
        RowPlan { form, lanes: lanes as u32, threads, resident }
    }

    /// Creates a plan with `lanes` lanes per row, a power of two of at least 32. Rows of one warp share a block, so
    /// that the block limit of a multiprocessor does not limit occupancy.
    pub fn of_lanes(form: &'static str, lanes: u32) -> RowPlan {
        let kernel = RowKernel::new(form, 1);
        let threads = kernel.threads(lanes as usize);
        RowPlan { form, lanes, threads, resident: kernel.resident }
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

    /// Returns the grid for `rows` rows that are summed, and the number of partial sums: one for each block, or for
    /// each group that reads its rows element by element. Both depend on sizes alone, as does the order of the sums.
    pub fn summing_grid(&self, rows: usize) -> (Grid, u64) {
        /// Minimum rows of a group, so that the partial sums are small compared to the operands.
        const ROWS: u64 = 4;
        let groups = self.groups_of_block();
        let most = self.resident / u64::from(self.threads);
        let blocks = (rows as u64).div_ceil(ROWS * groups).clamp(1, most);
        let sums = if self.form == ANY { blocks * groups } else { blocks };
        (self.blocks(blocks), sums)
    }

    fn blocks(&self, blocks: u64) -> Grid {
        Grid { blocks: [blocks as u32, 1, 1], threads: self.threads, shared: 0 }
    }
}
