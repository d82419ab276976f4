//! Prefetching of what is packed next, while the current block is multiplied.

use super::PackedRegion;
use crate::gemm::Matrix;
use crate::simd::prefetch;

/// Bytes of a cache line.
const LINE: usize = 64;

/// The memory of a region of an operand: runs of adjacent elements, `stride` elements apart.
pub struct PrefetchedRegion<'a, T> {
    data: &'a [T],
    stride: usize,
    runs: usize,
    lines: usize,
}

impl<'a, T> PrefetchedRegion<'a, T> {
    pub fn new(matrix: Matrix<'a, T>, PackedRegion { lead, depth }: PackedRegion) -> Self {
        let data = &matrix.data[lead.start * matrix.row + depth.start * matrix.col..];
        let (stride, runs, length) = if matrix.row == 1 {
            (matrix.col, depth.len(), lead.len())
        } else {
            (matrix.row, lead.len(), depth.len())
        };
        PrefetchedRegion { data, stride, runs, lines: (length * size_of::<T>()).div_ceil(LINE) }
    }

    /// Requests part `index` of `parts` for the second-level cache.
    pub fn request(&self, index: usize, parts: usize) {
        for run in self.runs * index / parts..self.runs * (index + 1) / parts {
            let start = self.data.as_ptr().wrapping_add(run * self.stride).cast::<i8>();
            for line in 0..self.lines {
                prefetch::<2>(start.wrapping_add(line * LINE));
            }
        }
    }
}
