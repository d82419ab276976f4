//! Matmuls of small bf16 matrices that are packed for the CPU's dot products of pairs (AVX512-BF16).
//!
//! A `u32` holds two consecutive bf16 of the contraction, the first in its lower half. One instruction multiplies a
//! pair of the left matrix with sixteen pairs of the right matrix and adds both products to sixteen f32. If operands
//! are reused many times, as in attention, this saves the packing of every tile in a general GEMM.

mod layout;

use std::arch::x86_64::{
    __m512, __m512bh, __m512i, _mm512_dpbf16_ps, _mm512_loadu_ps, _mm512_loadu_si512,
    _mm512_set1_epi32, _mm512_setzero_ps, _mm512_storeu_ps,
};
use std::mem::transmute;

pub(super) use layout::{PanelLayout, StridedRows, pair_columns, pair_rows, transpose};

/// Columns of a panel, one register.
pub(super) const PANEL: usize = 16;

/// The left matrix of a matmul: rows of pairs, `stride` pairs apart.
#[derive(Clone, Copy)]
pub(super) struct PairRows<'a> {
    pub pairs: &'a [u32],
    pub stride: usize,
}

/// The right matrix of a matmul: pairs of one position of the contraction are contiguous, in panels of [`PANEL`]
/// columns that start `stride` pairs apart.
#[derive(Clone, Copy)]
pub(super) struct Panels<'a> {
    pub pairs: &'a [u32],
    pub stride: usize,
}

/// `c[m, n] = a[m, 2 * pairs] * b[2 * pairs, n] + c`, or without `+ c` if not `accumulate`.
///
/// `n` is a multiple of [`PANEL`]; rows of `c` are contiguous.
///
/// # Safety
/// The CPU has AVX512-BF16.
pub(super) unsafe fn multiply(
    [m, n, pairs]: [usize; 3],
    a: PairRows,
    b: Panels,
    accumulate: bool,
    c: &mut [f32],
) {
    if m == 0 || n == 0 {
        return;
    }
    assert!(n.is_multiple_of(PANEL) && c.len() >= m * n, "{m} x {n} results fit");
    assert!(a.pairs.len() >= (m - 1) * a.stride + pairs, "{m} rows of {pairs} pairs");
    assert!(b.pairs.len() >= (n / PANEL - 1) * b.stride + pairs * PANEL, "{pairs} pairs of {n}");
    let tiles = PairTiles { n, pairs, a, b, accumulate, c: c.as_mut_ptr() };
    // SAFETY: the caller promises the instructions; the sizes were just compared.
    unsafe { tiles.run_tiles(m) }
}

struct PairTiles<'a> {
    n: usize,
    pairs: usize,
    a: PairRows<'a>,
    b: Panels<'a>,
    accumulate: bool,
    c: *mut f32,
}

impl PairTiles<'_> {
    /// # Safety
    /// As [`multiply`], whose sizes fit.
    #[target_feature(enable = "avx512f,avx512bf16")]
    unsafe fn run_tiles(&self, m: usize) {
        let mut column = 0;
        while column < self.n {
            let two = column + PANEL < self.n;
            let mut row = 0;
            while row < m {
                let left = m - row;
                // SAFETY: rows and columns are inside, as the caller promises.
                row += unsafe {
                    match (two, left) {
                        (true, 8..) => self.tile::<8, 2>(row, column),
                        (true, 4..) => self.tile::<4, 2>(row, column),
                        (true, _) => self.tile::<1, 2>(row, column),
                        (false, 8..) => self.tile::<8, 1>(row, column),
                        (false, _) => self.tile::<1, 1>(row, column),
                    }
                };
            }
            column += if two { 2 * PANEL } else { PANEL };
        }
    }

    /// Computes `R` rows of `P` panels from `row` and `column` on, and returns `R`.
    ///
    /// # Safety
    /// As [`multiply`], and these rows and columns are inside.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bf16")]
    unsafe fn tile<const R: usize, const P: usize>(&self, row: usize, column: usize) -> usize {
        // SAFETY: all places are inside their operands, as the caller promises.
        unsafe {
            let c = self.c.add(row * self.n + column);
            let mut sums: [[__m512; P]; R] = [[_mm512_setzero_ps(); P]; R];
            if self.accumulate {
                for (i, sums) in sums.iter_mut().enumerate() {
                    for (j, sum) in sums.iter_mut().enumerate() {
                        *sum = _mm512_loadu_ps(c.add(i * self.n + j * PANEL));
                    }
                }
            }
            let a = self.a.pairs.as_ptr().add(row * self.a.stride);
            let b = self.b.pairs.as_ptr().add(column / PANEL * self.b.stride);
            for p in 0..self.pairs {
                let b: [__m512bh; P] = std::array::from_fn(|j| {
                    let pairs = _mm512_loadu_si512(b.add(j * self.b.stride + p * PANEL).cast());
                    transmute::<__m512i, __m512bh>(pairs)
                });
                for (i, sums) in sums.iter_mut().enumerate() {
                    let pair = _mm512_set1_epi32(*a.add(i * self.a.stride + p) as i32);
                    let a = transmute::<__m512i, __m512bh>(pair);
                    for (sum, b) in sums.iter_mut().zip(b) {
                        *sum = _mm512_dpbf16_ps(*sum, a, b);
                    }
                }
            }
            for (i, sums) in sums.iter().enumerate() {
                for (j, sum) in sums.iter().enumerate() {
                    _mm512_storeu_ps(c.add(i * self.n + j * PANEL), *sum);
                }
            }
        }
        R
    }
}
