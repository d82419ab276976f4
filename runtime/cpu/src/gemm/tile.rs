//! The instruction sets of matmuls: their tiles, and kernels that are compiled for each of them.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m256, __m512};

use super::lanes::Lanes;
use crate::simd::Level;

/// Registers in a row of a tile.
pub const REGISTERS: usize = 2;

/// The size of a tile of the result, for an instruction set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile {
    level: Level,
    pub rows: usize,
    pub columns: usize,
    /// The most steps of the depth that a packed block has, by measurement. With AVX2, a panel of the right operand
    /// stays in the first-level cache; with AVX-512, it is read from the second level without delay, and the result is
    /// passed over less often.
    ///
    /// The order of sums follows from this number alone.
    pub depth: usize,
}

impl Tile {
    /// Returns the tile for the instruction set of kernels.
    pub fn detect() -> Tile {
        Tile::of_level(Level::detect())
    }

    /// Returns the tile for an instruction set.
    pub fn of_level(level: Level) -> Tile {
        let (rows, columns, depth) = match level {
            // Of 16 registers of 4 numbers, 8 hold the tile.
            Level::Portable => (4, 8, 384),
            // Of 16 registers of 8 numbers, 12 hold the tile, 2 a row of the right operand and 1 the left one.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => (6, 16, 384),
            // Of 32 registers of 16 numbers, 24 hold the tile.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 | Level::Avx512Bf16 => (12, 32, 512),
        };
        Tile { level, rows, columns, depth }
    }

    /// Runs a kernel with the registers of the instruction set.
    pub fn run(self, kernel: impl TileKernel) {
        match self.level {
            // SAFETY: every CPU of the target has its baseline.
            Level::Portable => unsafe { kernel.run::<[f32; 4], 4, 8>() },
            // SAFETY: the CPU has these instructions, or its level would be another one.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { run_avx2(kernel) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 | Level::Avx512Bf16 => unsafe { run_avx512(kernel) },
        }
    }
}

/// A function that is compiled for each instruction set. It and what it calls must be inlined.
pub trait TileKernel {
    /// Runs the kernel with registers `L`, for tiles of `R` rows and `W` columns.
    ///
    /// # Safety
    /// The CPU has the instructions of `L`.
    unsafe fn run<L: Lanes, const R: usize, const W: usize>(self);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn run_avx2(kernel: impl TileKernel) {
    // SAFETY: the caller vouches for the instructions.
    unsafe { kernel.run::<__m256, 6, 16>() }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn run_avx512(kernel: impl TileKernel) {
    // SAFETY: the caller vouches for the instructions.
    unsafe { kernel.run::<__m512, 12, 32>() }
}
