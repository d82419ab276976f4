//! A matrix that is spread over ranks: who holds what of it.

use std::ops::Range;

use crate::backend::{Backend, BlockCopy, View, ViewMut};
use crate::tensor::{Extent, ParamRef};

/// The elements of a matrix that a rank updates: a run of its block of the matrix.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Ranks of the same replica hold each element once.
    pub replica: usize,
    pub block: Block,
    /// Of the row-major elements of the block.
    pub run: Range<usize>,
}

/// A rectangle of a matrix.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Block {
    rows: Extent,
    cols: Extent,
}

/// Some rows of a run, or parts of rows: `count` stretches of `len` elements.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Stretches {
    count: usize,
    len: usize,
    /// Where they begin in the run, and how far from each other.
    start: usize,
    /// Where they begin in the matrix.
    matrix_start: usize,
    matrix_stride: usize,
}

impl Block {
    /// The block of `param` on a rank where its dims have these extents.
    pub fn of(param: &ParamRef, extents: &[Extent]) -> Block {
        let (reads, writes) = extents.split_at(param.contracted());
        Block { rows: Extent::flattened(reads), cols: Extent::flattened(writes) }
    }

    /// Rows of the whole matrix.
    pub fn matrix_rows(&self) -> usize {
        self.rows.global
    }

    /// Columns of the whole matrix.
    pub fn matrix_cols(&self) -> usize {
        self.cols.global
    }
}

impl Part {
    /// Puts the elements of the part into their places in the matrix.
    pub fn put(&self, backend: &dyn Backend, part: View<'_>, mut matrix: ViewMut<'_>) {
        for of in self.stretches() {
            let Stretches { count, len, start, matrix_start, matrix_stride } = of;
            let matrix = matrix.reborrow();
            backend.copy_blocks(
                &BlockCopy {
                    blocks: count,
                    len,
                    src_start: start,
                    src_stride: len,
                    dst_start: matrix_start,
                    dst_stride: matrix_stride,
                },
                part,
                matrix,
            );
        }
    }

    /// Takes the elements of the part out of the matrix.
    pub fn take(&self, backend: &dyn Backend, matrix: View<'_>, mut part: ViewMut<'_>) {
        for of in self.stretches() {
            let Stretches { count, len, start, matrix_start, matrix_stride } = of;
            let part = part.reborrow();
            backend.copy_blocks(
                &BlockCopy {
                    blocks: count,
                    len,
                    src_start: matrix_start,
                    src_stride: matrix_stride,
                    dst_start: start,
                    dst_stride: len,
                },
                matrix,
                part,
            );
        }
    }

    /// The end of a row, whole rows, and the beginning of a row; or one stretch, where rows follow each other in the
    /// matrix, too.
    fn stretches(&self) -> impl Iterator<Item = Stretches> {
        let Block { rows, cols } = self.block;
        let Range { start, end } = self.run;
        let place = |element: usize| {
            (rows.offset + element / cols.local.max(1)) * cols.global
                + cols.offset
                + element % cols.local.max(1)
        };
        let stretches = move |from: usize, count: usize, len: usize| Stretches {
            count,
            len,
            start: from - start,
            matrix_start: place(from),
            matrix_stride: cols.global,
        };
        let row = cols.local.max(1);
        let (whole_from, whole_to) = (start.next_multiple_of(row), end / row * row);
        let found = if start == end {
            [None, None, None]
        } else if cols.local == cols.global || whole_from > whole_to {
            [Some(stretches(start, 1, end - start)), None, None]
        } else {
            [
                Some(stretches(start, 1, whole_from - start)),
                Some(stretches(whole_from, (whole_to - whole_from) / row, row)),
                Some(stretches(whole_to, 1, end - whole_to)),
            ]
        };
        found.into_iter().flatten().filter(|of| of.count * of.len > 0)
    }
}
