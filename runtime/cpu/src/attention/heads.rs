//! One head inside `[batch, positions, heads, dim]`.

use std::ops::Range;

#[cfg(target_arch = "x86_64")]
use crate::dots::StridedRows;
use crate::float::{Float, cast_slice};
use crate::gemm::Matrix;
use meshwright_backend::SequenceLayout;

/// An operand `[batch, positions, heads, dim]`.
#[derive(Clone, Copy)]
pub(super) struct Heads<'a, T> {
    data: &'a [T],
    layout: SequenceLayout,
    heads: usize,
    dim: usize,
}

impl<'a, T: Float> Heads<'a, T> {
    pub fn new(data: &'a [T], layout: SequenceLayout, [heads, dim]: [usize; 2]) -> Self {
        Heads { data, layout, heads, dim }
    }

    /// Returns one head of one sample.
    pub fn head(&self, sample: usize, head: usize) -> Head<'a, T> {
        let stride = self.heads * self.dim;
        let first = sample * self.layout.pitch * stride + head * self.dim;
        // Without positions there is no first one either.
        let data = if self.layout.len == 0 { &[] } else { &self.data[first..] };
        Head { data, stride, dim: self.dim }.rows(0..self.layout.len)
    }
}

/// Rows of one head: rows of `dim` elements, `stride` elements apart.
#[derive(Clone, Copy)]
pub(super) struct Head<'a, T> {
    data: &'a [T],
    stride: usize,
    dim: usize,
}

impl<'a, T: Float> Head<'a, T> {
    /// Returns some of the rows.
    pub fn rows(&self, rows: Range<usize>) -> Head<'a, T> {
        let data = match rows.len().checked_sub(1) {
            None => &[],
            Some(last) => &self.data[rows.start * self.stride..][..last * self.stride + self.dim],
        };
        Head { data, ..*self }
    }

    /// Returns all rows with the strides of the tensor.
    #[cfg(target_arch = "x86_64")]
    pub fn source(&self) -> StridedRows<'a, T> {
        StridedRows { data: self.data, stride: self.stride, count: self.count(), width: self.dim }
    }

    pub fn count(&self) -> usize {
        self.data.len().div_ceil(self.stride)
    }

    pub fn row(&self, row: usize) -> &'a [T] {
        &self.data[row * self.stride..][..self.dim]
    }

    /// The rows as a matrix `[rows, dim]`.
    pub fn matrix(&self) -> Matrix<'a, T> {
        Matrix::rows(self.data, self.stride)
    }

    /// The transpose of the rows, `[dim, rows]`.
    pub fn transposed(&self) -> Matrix<'a, T> {
        Matrix::transposed(self.data, self.stride)
    }
}

/// The rows of one head in f32, next to each other: rows as far apart as in a tensor share few sets of the cache.
pub(super) struct WideRows<'a> {
    rows: &'a mut [f32],
    dim: usize,
}

impl<'a> WideRows<'a> {
    /// Creates an empty buffer for rows of `dim` elements.
    pub fn new(rows: &'a mut [f32], dim: usize) -> Self {
        WideRows { rows, dim }
    }

    /// Loads the rows of `head`, which must fit.
    pub fn turn_to_head<T: Float>(&mut self, head: Head<T>) {
        for (row, out) in (0..head.count()).zip(self.rows.chunks_exact_mut(self.dim)) {
            cast_slice(head.row(row), out);
        }
    }

    /// The rows from `first` on.
    pub fn from(&self, first: usize) -> Matrix<'_> {
        Matrix::rows(&self.rows[first * self.dim..], self.dim)
    }
}
