//! Shards of a matrix that is distributed over ranks.

use std::ops::Range;

use crate::tensor::{Extent, ParamRef};
use meshwright_backend::{Backend, BlockCopy, View, ViewMut};

/// The elements of a matrix that a rank updates: a run of its block of the matrix.
#[derive(Debug, Clone, PartialEq)]
pub struct MatrixShard {
    /// Ranks of the same replica hold each element once.
    pub replica: usize,
    pub block: MatrixBlock,
    /// Range of the row-major elements of the block.
    pub run: Range<usize>,
}

/// A rectangle of a matrix.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MatrixBlock {
    rows: Extent,
    cols: Extent,
}

impl MatrixBlock {
    /// Creates the block of `param` on a rank with these extents of its dims.
    pub fn new(param: &ParamRef, extents: &[Extent]) -> MatrixBlock {
        let [rows, cols] = param.weight_sides().map(|side| Extent::flattened(&extents[side]));
        MatrixBlock { rows, cols }
    }

    /// Returns the number of rows of the complete matrix.
    pub fn matrix_rows(&self) -> usize {
        self.rows.global
    }

    /// Returns the number of columns of the complete matrix.
    pub fn matrix_cols(&self) -> usize {
        self.cols.global
    }
}

impl MatrixShard {
    /// Copies the elements of the shard to their places in the matrix.
    pub fn copy_into(&self, backend: &dyn Backend, shard: View<'_>, mut matrix: ViewMut<'_>) {
        for blocks in self.block_copies() {
            backend.copy_blocks(&blocks, shard, matrix.reborrow());
        }
    }

    /// Copies the elements of the shard out of the matrix.
    pub fn copy_from(&self, backend: &dyn Backend, matrix: View<'_>, mut shard: ViewMut<'_>) {
        for blocks in self.block_copies() {
            backend.copy_blocks(&blocks.reversed(), matrix, shard.reborrow());
        }
    }

    /// Returns the copies from the shard to the matrix: the end of a row, complete rows, and the start of a row; or one
    /// copy if the rows are contiguous in the matrix.
    fn block_copies(&self) -> impl Iterator<Item = BlockCopy> {
        let MatrixBlock { rows, cols } = self.block;
        let Range { start, end } = self.run;
        let matrix_index = |element: usize| {
            (rows.offset + element / cols.local.max(1)) * cols.global
                + cols.offset
                + element % cols.local.max(1)
        };
        let copies = move |from: usize, blocks: usize, len: usize| BlockCopy {
            blocks,
            len,
            src_start: from - start,
            src_stride: len,
            dst_start: matrix_index(from),
            dst_stride: cols.global,
        };
        let row = cols.local.max(1);
        let (whole_from, whole_to) = (start.next_multiple_of(row), end / row * row);
        let found = if start == end {
            [None, None, None]
        } else if cols.local == cols.global || whole_from > whole_to {
            [Some(copies(start, 1, end - start)), None, None]
        } else {
            [
                Some(copies(start, 1, whole_from - start)),
                Some(copies(whole_from, (whole_to - whole_from) / row, row)),
                Some(copies(whole_to, 1, end - whole_to)),
            ]
        };
        found.into_iter().flatten().filter(|copy| copy.blocks * copy.len > 0)
    }
}
