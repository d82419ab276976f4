//! Registers of f32 lanes, for sums that must stay in them.
//!
//! Loops over arrays, as other kernels have them, are not reliably kept in registers when they hold a whole tile or the
//! lanes of a dot product.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use half::bf16;

use crate::float::Float;
use crate::simd::BASELINE_FUSES;
use meshwright_backend::math::fma;

/// A register of an instruction set.
///
/// # Safety
/// All functions may be called only where the CPU has the instruction set, and are fast only where their caller is
/// compiled for it.
pub unsafe trait Lanes: Copy {
    /// Lanes of a register, at most 16.
    const COUNT: usize;

    /// True if products are added in one rounding.
    const FUSES: bool;

    unsafe fn zero() -> Self;

    /// The elements from `from` on; all can be read.
    unsafe fn load(from: *const f32) -> Self;

    /// The elements from `from` on in f32; all can be read.
    unsafe fn load_bf16(from: *const bf16) -> Self;

    /// [`load`](Self::load) or [`load_bf16`](Self::load_bf16).
    #[inline(always)]
    unsafe fn widen<T: Float>(from: *const T) -> Self {
        // SAFETY: as the caller promises; `T` is one of these two types.
        unsafe { if T::IS_F32 { Self::load(from.cast()) } else { Self::load_bf16(from.cast()) } }
    }

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
    const FUSES: bool = BASELINE_FUSES;

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
    unsafe fn load_bf16(from: *const bf16) -> Self {
        // SAFETY: as above.
        unsafe { std::array::from_fn(|lane| (*from.add(lane)).widen_to_f32()) }
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
    (
        $register:ty, $count:literal, $zero:ident, $load:ident, $load_halves:ident, $extend:ident, $shift:ident,
        $cast:ident, $splat:ident, $add:ident, $fma:ident, $store:ident
    ) => {
        // SAFETY: each function uses nothing but its own instruction set.
        unsafe impl Lanes for $register {
            const COUNT: usize = $count;
            const FUSES: bool = true;

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
            unsafe fn load_bf16(from: *const bf16) -> Self {
                // SAFETY: as above. The upper half of an f32 is a bf16.
                unsafe { $cast($shift::<16>($extend($load_halves(from.cast())))) }
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
    _mm_loadu_si128,
    _mm256_cvtepu16_epi32,
    _mm256_slli_epi32,
    _mm256_castsi256_ps,
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
    _mm256_loadu_si256,
    _mm512_cvtepu16_epi32,
    _mm512_slli_epi32,
    _mm512_castsi512_ps,
    _mm512_set1_ps,
    _mm512_add_ps,
    _mm512_fmadd_ps,
    _mm512_storeu_ps
);
