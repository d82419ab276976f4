//! GEMM: in blocks ([`blocked`]), as dot products of pairs of bf16 where the CPU has an instruction for them
//! ([`bf16_dot`]), or with few rows or columns ([`skinny`]). `bench/results/gemm.md` has the reasons.

mod batched;
#[cfg(target_arch = "x86_64")]
mod bf16_dot;
mod blocked;
mod lanes;
mod right_operand;
mod rounded;
mod skinny;
mod tile;

use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(target_arch = "x86_64")]
use bf16_dot::DotInstructions;
use half::bf16;
pub(super) use right_operand::{PANEL, RightOperand};
use tile::Tile;

use super::CpuBackend;
use super::float::{Float, by_float};
#[cfg(target_arch = "x86_64")]
use super::simd::Level;
use super::workers::Workers;
use meshwright_backend::{BatchedGemm, DType, Gemm, MatmulOps, View, ViewMut};

/// A matrix inside a slice: element `(i, j)` at `i * row + j * col`.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a, T = f32> {
    pub data: &'a [T],
    pub row: usize,
    pub col: usize,
}

impl<'a, T> Matrix<'a, T> {
    /// Rows of `stride` elements.
    pub fn rows(data: &'a [T], stride: usize) -> Self {
        Matrix { data, row: stride, col: 1 }
    }

    /// The transpose of rows of `stride` elements.
    pub fn transposed(data: &'a [T], stride: usize) -> Self {
        Matrix { data, row: 1, col: stride }
    }

    /// Returns the transpose.
    pub fn transpose(self) -> Self {
        Matrix { data: self.data, row: self.col, col: self.row }
    }
}

/// `c[m, n] = a[m, k] * b[k, n] + c`, or without `+ c` if not `accumulate`; [`skinny`] is for few rows or columns.
///
/// Rows of `c` are contiguous, and no size is 0. Elements are summed in f32 and rounded once; overwritten ones are not
/// read.
fn matmul<T: Float, C: Float>(
    workers: &Workers,
    mnk: [usize; 3],
    a: Matrix<T>,
    b: Matrix<T>,
    accumulate: bool,
    c: &mut [C],
) {
    #[cfg(target_arch = "x86_64")]
    if !T::IS_F32
        && let Some(dots) = DotInstructions::at_level(Level::detect())
    {
        let operands =
            [a, b].map(|x| Matrix { data: bytemuck::cast_slice(x.data), row: x.row, col: x.col });
        return bf16_dot::matmul(dots, workers, mnk, operands, accumulate, c);
    }
    blocked::matmul(workers, Tile::detect(), mnk, a, b, accumulate, c);
}

/// Minimum rows and columns of a result that is computed by tiles.
const MIN_SIDE: usize = 8;

impl MatmulOps for CpuBackend {
    fn gemm(&self, g: &Gemm, a: View, b: View, mut c: ViewMut) {
        let (workers, flops) = (&self.workers, &self.flops);
        match (a.dtype(), c.dtype()) {
            (DType::Bf16, DType::F32) => {
                gemm::<bf16, f32>(workers, flops, g, a.typed(), b.typed(), c.typed());
            }
            (dtype, _) => by_float!(dtype => T;
                gemm::<T, T>(workers, flops, g, a.typed(), b.typed(), c.typed())),
        }
    }

    fn batched_gemm(&self, g: &BatchedGemm, a: View, b: View, mut c: ViewMut) {
        self.flops.fetch_add(g.flops(), Ordering::Relaxed);
        let workers = &self.workers;
        match (a.dtype(), c.dtype()) {
            (DType::Bf16, DType::F32) => {
                batched::batched_gemm::<bf16, f32>(workers, g, a.typed(), b.typed(), c.typed());
            }
            (dtype, _) => by_float!(dtype => T;
                batched::batched_gemm::<T, T>(workers, g, a.typed(), b.typed(), c.typed())),
        }
    }
}

/// Multiplies whole operands.
fn gemm<T: Float, C: Float>(
    workers: &Workers,
    flops: &AtomicU64,
    g: &Gemm,
    a: &[T],
    b: &[T],
    c: &mut [C],
) {
    let &Gemm { m, n, k, trans_a, trans_b, accumulate } = g;
    assert_eq!([a.len(), b.len(), c.len()], [m * k, k * n, m * n], "operands fit {g:?}");
    flops.fetch_add(2 * (m * n * k) as u64, Ordering::Relaxed);
    if m * n * k == 0 {
        if !accumulate {
            c.fill(C::ZERO);
        }
        return;
    }
    let a = if trans_a { Matrix::transposed(a, m) } else { Matrix::rows(a, k) };
    let b = if trans_b { Matrix::transposed(b, k) } else { Matrix::rows(b, n) };
    let matmul = if m.min(n) < MIN_SIDE { skinny::matmul } else { matmul };
    workers.install(|| matmul(workers, [m, n, k], a, b, accumulate, c));
}
