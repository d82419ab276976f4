//! Matmuls of bf16 with a result in f32, in which gradients of parameters are accumulated.
//!
//! `gemmkit::gemm` has one type for operands and result. Its driver has a type for each of them, and it has kernels
//! that sum bf16 products in f32; this module chooses among them for the CPU.

use gemmkit::kernel::{KernelFamily, MixedGemmF32};
use gemmkit::simd::{KernelSimd, ScalarTok};
use gemmkit::{Parallelism, Workspace, driver};
#[cfg(target_arch = "x86_64")]
use gemmkit::{
    kernel::Bf16DotGemmF32,
    simd::{Avx512Bf16, Avx512F, Fma},
};
use half::bf16;

use super::Matrix;
use crate::simd::Level;

/// Implements [`Matmul::matmul`](super::Matmul::matmul).
pub(super) fn matmul(
    parallelism: Parallelism,
    mnk: [usize; 3],
    a: Matrix<bf16>,
    b: Matrix<bf16>,
    accumulate: bool,
    c: &mut [f32],
) {
    let task = Task { parallelism, mnk, a, b, accumulate, c };
    // Tiles are `2 or 4 registers x 12, 6 or 4 columns`, as the crate chooses them for its own products.
    match Level::detect() {
        // SAFETY: the CPU has these instructions, as `detect` found.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512Bf16 => unsafe { task.run_task::<Bf16DotGemmF32, _, 2, 12>(Avx512Bf16) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { task.run_task::<MixedGemmF32<bf16>, _, 2, 12>(Avx512F) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { task.run_task::<MixedGemmF32<bf16>, _, 2, 6>(Fma) },
        // SAFETY: every CPU of this target has these instructions.
        #[cfg(target_arch = "aarch64")]
        Level::Portable => unsafe {
            task.run_task::<MixedGemmF32<bf16>, _, 4, 4>(gemmkit::simd::Neon);
        },
        // SAFETY: no special instructions are needed.
        #[cfg(not(target_arch = "aarch64"))]
        Level::Portable => unsafe { task.run_task::<MixedGemmF32<bf16>, _, 4, 4>(ScalarTok) },
    }
}

struct Task<'a> {
    parallelism: Parallelism,
    mnk: [usize; 3],
    a: Matrix<'a, bf16>,
    b: Matrix<'a, bf16>,
    accumulate: bool,
    c: &'a mut [f32],
}

impl Task<'_> {
    /// # Safety
    /// The CPU has the instructions that `simd` stands for.
    unsafe fn run_task<F, S, const REGISTERS: usize, const COLUMNS: usize>(self, simd: S)
    where
        F: KernelFamily<Lhs = bf16, Rhs = bf16, Acc = f32, Out = f32>,
        S: KernelSimd<bf16, bf16, f32, f32>,
    {
        let Task { parallelism, mnk: [m, n, k], a, b, accumulate, c } = self;
        let last =
            |x: &Matrix<bf16>, rows: usize, cols: usize| (rows - 1) * x.row + (cols - 1) * x.col;
        assert!(last(&a, m, k) < a.data.len() && last(&b, k, n) < b.data.len() && c.len() == m * n);
        let beta = if accumulate { 1.0 } else { 0.0 };
        // Kernels need contiguous columns of the result, so its transpose is computed: bT * aT.
        let workspace = &mut Workspace::new();
        // SAFETY: all elements lie inside their slices, as asserted; `c` is exclusive, so nothing overlaps it.
        unsafe {
            driver::run::<F, S, REGISTERS, COLUMNS>(
                simd,
                n,
                k,
                m,
                1.0,
                b.data.as_ptr(),
                b.col as isize,
                b.row as isize,
                a.data.as_ptr(),
                a.col as isize,
                a.row as isize,
                beta,
                c.as_mut_ptr(),
                1,
                n as isize,
                parallelism,
                workspace,
            );
        }
    }
}
