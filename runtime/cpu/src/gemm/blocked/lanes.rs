//! Registers of f32 lanes, for the tile that must stay in them.
//!
//! Loops over arrays, as other kernels have them, are not reliably kept in registers when they hold a whole tile.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m256, __m512, _mm256_add_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_set1_ps,
    _mm256_setzero_ps, _mm256_storeu_ps, _mm512_add_ps, _mm512_fmadd_ps, _mm512_loadu_ps,
    _mm512_set1_ps, _mm512_setzero_ps, _mm512_storeu_ps,
};

use crate::simd::BASELINE_FUSES;
use meshwright_backend::math::fma;

/// A register of an instruction set.
///
/// # Safety
/// All functions may be called only where the CPU has the instruction set, and are fast only where their caller is
/// compiled for it.
pub unsafe trait Lanes: Copy {
    /// Lanes of a register.
    const COUNT: usize;

    unsafe fn zero() -> Self;

    /// The elements from `from` on; all can be read.
    unsafe fn load(from: *const f32) -> Self;

    /// `x` in all lanes.
    unsafe fn splat(x: f32) -> Self;

    unsafe fn add(self, other: Self) -> Self;

    /// `self + a * b`, rounded once.
    unsafe fn add_product(self, a: Self, b: Self) -> Self;

    /// Writes the elements from `to` on; all can be written.
    unsafe fn store(self, to: *mut f32);
}

// SAFETY: no function uses more than the baseline of the target.
unsafe impl Lanes for [f32; 4] {
    const COUNT: usize = 4;

    #[inline(always)]
    unsafe fn zero() -> Self {
        [0.0; 4]
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: all elements can be read, as the caller guarantees.
        unsafe { from.cast::<Self>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        [x; 4]
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        std::array::from_fn(|lane| self[lane] + other[lane])
    }

    /// In two roundings where the baseline has no instruction for one.
    #[inline(always)]
    unsafe fn add_product(self, a: Self, b: Self) -> Self {
        std::array::from_fn(|lane| fma::<{ BASELINE_FUSES }>(a[lane], b[lane], self[lane]))
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: all elements can be written, as the caller guarantees.
        unsafe { to.cast::<Self>().write_unaligned(self) }
    }
}

#[cfg(target_arch = "x86_64")]
macro_rules! lanes {
    ($register:ty, $count:literal, $zero:ident, $load:ident, $splat:ident, $add:ident, $fma:ident, $store:ident) => {
        // SAFETY: each function uses nothing but its own instruction set.
        unsafe impl Lanes for $register {
            const COUNT: usize = $count;

            #[inline(always)]
            unsafe fn zero() -> Self {
                // SAFETY: the caller's CPU has the instruction, here and below.
                unsafe { $zero() }
            }

            #[inline(always)]
            unsafe fn load(from: *const f32) -> Self {
                // SAFETY: as above.
                unsafe { $load(from) }
            }

            #[inline(always)]
            unsafe fn splat(x: f32) -> Self {
                // SAFETY: as above.
                unsafe { $splat(x) }
            }

            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                // SAFETY: as above.
                unsafe { $add(self, other) }
            }

            #[inline(always)]
            unsafe fn add_product(self, a: Self, b: Self) -> Self {
                // SAFETY: as above.
                unsafe { $fma(a, b, self) }
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut f32) {
                // SAFETY: as above.
                unsafe { $store(to, self) }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
lanes!(
    __m256,
    8,
    _mm256_setzero_ps,
    _mm256_loadu_ps,
    _mm256_set1_ps,
    _mm256_add_ps,
    _mm256_fmadd_ps,
    _mm256_storeu_ps
);
#[cfg(target_arch = "x86_64")]
lanes!(
    __m512,
    16,
    _mm512_setzero_ps,
    _mm512_loadu_ps,
    _mm512_set1_ps,
    _mm512_add_ps,
    _mm512_fmadd_ps,
    _mm512_storeu_ps
);
