//! Matrix products, from the `gemmkit` crate (chosen by `bench/results/gemm.md`).

use std::sync::atomic::{AtomicU64, Ordering};

use gemmkit::{MatMut, MatRef, Parallelism};

use super::workers::Workers;
use crate::backend::Gemm;

/// A matrix inside a slice: element `(i, j)` at `i * row + j * col`.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a> {
    pub data: &'a [f32],
    pub row: usize,
    pub col: usize,
}

impl<'a> Matrix<'a> {
    /// Rows of `stride` elements.
    pub fn rows(data: &'a [f32], stride: usize) -> Self {
        Matrix { data, row: stride, col: 1 }
    }

    /// The transpose of rows of `stride` elements.
    pub fn transposed(data: &'a [f32], stride: usize) -> Self {
        Matrix { data, row: 1, col: stride }
    }
}

/// The engine that multiplies: everything else calls the crate through this trait.
pub(super) trait Multiply {
    /// `c[m, n] = a[m, k] * b[k, n] + beta * c`, rows of `c` contiguous; with `beta` 0, `c` is not read.
    fn multiply(&self, mnk: [usize; 3], a: Matrix, b: Matrix, beta: f32, c: &mut [f32]);
}

/// The calling thread alone.
pub(super) struct OneThread;

impl Multiply for OneThread {
    fn multiply(&self, mnk: [usize; 3], a: Matrix, b: Matrix, beta: f32, c: &mut [f32]) {
        multiply(Parallelism::Serial, mnk, a, b, beta, c);
    }
}

impl Multiply for Workers {
    fn multiply(&self, mnk: [usize; 3], a: Matrix, b: Matrix, beta: f32, c: &mut [f32]) {
        match self.threads() {
            1 => OneThread.multiply(mnk, a, b, beta, c),
            n => self.install(|| multiply(Parallelism::Rayon(n), mnk, a, b, beta, c)),
        }
    }
}

fn multiply(
    parallelism: Parallelism,
    [m, n, k]: [usize; 3],
    a: Matrix,
    b: Matrix,
    beta: f32,
    c: &mut [f32],
) {
    let a = MatRef::new(a.data, m, k, a.row as isize, a.col as isize);
    let b = MatRef::new(b.data, k, n, b.row as isize, b.col as isize);
    gemmkit::gemm(1.0, a, b, beta, MatMut::from_row_major(c, m, n), parallelism);
}

/// The product of whole operands.
pub(super) fn gemm(
    workers: &Workers,
    flops: &AtomicU64,
    g: &Gemm,
    a: &[f32],
    b: &[f32],
    c: &mut [f32],
) {
    let &Gemm { m, n, k, trans_a, trans_b, accumulate } = g;
    assert_eq!([a.len(), b.len(), c.len()], [m * k, k * n, m * n], "operands fit {g:?}");
    flops.fetch_add(2 * (m * n * k) as u64, Ordering::Relaxed);
    if k == 0 {
        if !accumulate {
            c.fill(0.0);
        }
        return;
    }
    let a = if trans_a { Matrix::transposed(a, m) } else { Matrix::rows(a, k) };
    let b = if trans_b { Matrix::transposed(b, k) } else { Matrix::rows(b, n) };
    workers.multiply([m, n, k], a, b, if accumulate { 1.0 } else { 0.0 }, c);
}
