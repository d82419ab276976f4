//! The innermost loops of a matmul: one tile of the result in registers, and all tiles of a block.
//!
//! Each element is one chain of fused multiply-adds over the depth of a block, so its bits depend on the tile and the
//! instruction set by [`Tile::depth`] only.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m256, __m512};

use super::lanes::Lanes;
use crate::simd::{Level, prefetch};

/// The size of a tile, for each instruction set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tile {
    /// 4 x 8: of 16 registers of 4 numbers, 8 hold the tile.
    Portable,
    /// 6 x 16: of 16 registers of 8 numbers, 12 hold the tile, 2 a row of the right operand and 1 the left one.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 12 x 32: of 32 registers of 16 numbers, 24 hold the tile.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Tile {
    /// Returns the tile for the instruction set of kernels.
    pub fn detect() -> Tile {
        Tile::of_level(Level::detect())
    }

    /// Returns the tile for an instruction set.
    pub fn of_level(level: Level) -> Tile {
        match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 | Level::Avx512Bf16 => Tile::Avx512,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => Tile::Avx2,
            Level::Portable => Tile::Portable,
        }
    }

    pub fn rows(self) -> usize {
        match self {
            Tile::Portable => 4,
            #[cfg(target_arch = "x86_64")]
            Tile::Avx2 => 6,
            #[cfg(target_arch = "x86_64")]
            Tile::Avx512 => 12,
        }
    }

    pub fn columns(self) -> usize {
        match self {
            Tile::Portable => 8,
            #[cfg(target_arch = "x86_64")]
            Tile::Avx2 => 16,
            #[cfg(target_arch = "x86_64")]
            Tile::Avx512 => 32,
        }
    }

    /// The most steps of the depth that a packed block has, by measurement. With AVX2, a panel of the right operand
    /// stays in the first-level cache; with AVX-512, it is read from the second level without delay, and the result is
    /// passed over less often.
    ///
    /// The order of sums follows from this number alone.
    pub fn depth(self) -> usize {
        match self {
            Tile::Portable => 384,
            #[cfg(target_arch = "x86_64")]
            Tile::Avx2 => 384,
            #[cfg(target_arch = "x86_64")]
            Tile::Avx512 => 512,
        }
    }
}

/// Elements of a cache line.
const LINE: usize = 16;

/// The left operand in panels of a tile's rows: element `(i, p)` of panel `j` at `j * panel + i * row + p * step`, and
/// `row` or `step` is 1.
#[derive(Clone, Copy)]
pub struct PackedLeft<'a> {
    pub data: &'a [f32],
    pub panel: usize,
    pub row: usize,
    pub step: usize,
}

/// The right operand in panels of a tile's columns: element `(p, i)` of panel `j` at `j * panel + p * step + i`.
#[derive(Clone, Copy)]
pub struct PackedRight<'a> {
    pub data: &'a [f32],
    pub panel: usize,
    pub step: usize,
}

impl<'a> PackedRight<'a> {
    /// Returns the operand from a panel on.
    pub fn panel(self, index: usize) -> Self {
        PackedRight { data: &self.data[index * self.panel..], ..self }
    }
}

/// A part of the result: of each row of `stride` elements, `columns` from `start` on.
pub struct ResultBlock<'a> {
    pub data: &'a mut [f32],
    pub stride: usize,
    pub start: usize,
    pub columns: usize,
}

/// `c = a * b` over `depth`, or `c += a * b`.
///
/// The last panel of `b` may reach beyond the columns of `c`, and is read as a whole.
pub fn block(tile: Tile, depth: usize, a: PackedLeft, b: PackedRight, c: ResultBlock, add: bool) {
    match tile {
        // SAFETY: every CPU of the target has its baseline.
        Tile::Portable => unsafe { tiles::<[f32; 4], 4, 2>(depth, a, b, c, add) },
        // SAFETY: the CPU has these instructions, or `Tile::of_level` would not have chosen this tile.
        #[cfg(target_arch = "x86_64")]
        Tile::Avx2 => unsafe { block_avx2(depth, a, b, c, add) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Tile::Avx512 => unsafe { block_avx512(depth, a, b, c, add) },
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn block_avx2(depth: usize, a: PackedLeft, b: PackedRight, c: ResultBlock, add: bool) {
    // SAFETY: the caller vouches for the instructions.
    unsafe { tiles::<__m256, 6, 2>(depth, a, b, c, add) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn block_avx512(depth: usize, a: PackedLeft, b: PackedRight, c: ResultBlock, add: bool) {
    // SAFETY: the caller vouches for the instructions.
    unsafe { tiles::<__m512, 12, 2>(depth, a, b, c, add) }
}

/// Tiles of `R` rows and `V` registers. The tiles of one panel of `b` are computed consecutively, so that the panel
/// stays in the first-level cache.
///
/// # Safety
/// The CPU has the instructions of `L`, here and below.
#[inline(always)]
unsafe fn tiles<L: Lanes, const R: usize, const V: usize>(
    depth: usize,
    a: PackedLeft,
    b: PackedRight,
    c: ResultBlock,
    add: bool,
) {
    let width = V * L::COUNT;
    for (panel, column) in (0..c.columns).step_by(width).enumerate() {
        let b = b.panel(panel);
        let columns = width.min(c.columns - column);
        for (panel, rows) in c.data.chunks_mut(R * c.stride).enumerate() {
            let a = PackedLeft { data: &a.data[panel * a.panel..], ..a };
            let part = ResultBlock { data: rows, start: c.start + column, columns, ..c };
            // SAFETY: as the caller says.
            unsafe { tile_of::<L, R, V>(depth, a, b, part, add) }
        }
    }
}

/// Computes a tile of the last rows of a block, so that no rows are wasted.
#[inline(always)]
unsafe fn tile_of<L: Lanes, const R: usize, const V: usize>(
    depth: usize,
    a: PackedLeft,
    b: PackedRight,
    c: ResultBlock,
    add: bool,
) {
    macro_rules! by_rows {
        ($($rows:literal)*) => {
            match c.data.len() / c.stride {
                // SAFETY: as the caller says.
                rows if rows == R => unsafe { compute_tile::<L, R, V>(depth, a, b, c, add) },
                // SAFETY: as above.
                $($rows if $rows < R => unsafe { compute_tile::<L, $rows, V>(depth, a, b, c, add) },)*
                rows => unreachable!("{rows} rows in a tile of {R}"),
            }
        };
    }
    by_rows!(1 2 3 4 5 6 7 8 9 10 11)
}

#[inline(always)]
#[allow(clippy::needless_range_loop)]
unsafe fn compute_tile<L: Lanes, const R: usize, const V: usize>(
    depth: usize,
    a: PackedLeft,
    b: PackedRight,
    c: ResultBlock,
    add: bool,
) {
    let width = V * L::COUNT;
    for row in c.data.chunks(c.stride) {
        for line in row[c.start..][..c.columns].chunks(LINE) {
            prefetch::<1>(line.as_ptr().cast());
        }
    }
    // SAFETY: as the caller says, here and below.
    let sums = unsafe {
        if a.row == 1 {
            sums_of::<L, R, V>(depth, PackedLeft { row: 1, ..a }, b)
        } else {
            sums_of::<L, R, V>(depth, a, b)
        }
    };
    for i in 0..R {
        let row = &mut c.data[i * c.stride + c.start..][..c.columns];
        if c.columns == width {
            for j in 0..V {
                let to = &mut row[j * L::COUNT..][..L::COUNT];
                // SAFETY: as above.
                unsafe {
                    if add { L::load(to.as_ptr()).add(sums[i][j]) } else { sums[i][j] }
                        .store(to.as_mut_ptr())
                };
            }
        } else {
            let mut whole = [[0f32; 16]; V];
            for j in 0..V {
                // SAFETY: as above; a register has at most 16 lanes.
                unsafe { sums[i][j].store(whole[j].as_mut_ptr()) };
            }
            for (at, c) in row.iter_mut().enumerate() {
                let sum = whole[at / L::COUNT][at % L::COUNT];
                *c = if add { *c + sum } else { sum };
            }
        }
    }
}

/// The products of a tile, summed over the depth in registers. By pointers: with a check in each step the compiler
/// would keep the sums in memory, too.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
unsafe fn sums_of<L: Lanes, const R: usize, const V: usize>(
    depth: usize,
    a: PackedLeft,
    b: PackedRight,
) -> [[L; V]; R] {
    assert!(depth > 0 && (R - 1) * a.row + (depth - 1) * a.step < a.data.len());
    assert!((depth - 1) * b.step + V * L::COUNT <= b.data.len());
    let (mut left, mut right) = (a.data.as_ptr(), b.data.as_ptr());
    // SAFETY: the CPU has the instructions; all that is read lies inside of the slices, as asserted. The pointers
    // may end up beyond them, where they are not read.
    unsafe {
        let mut sums = [[L::zero(); V]; R];
        for _ in 0..depth {
            let mut registers = [L::zero(); V];
            for j in 0..V {
                registers[j] = L::load(right.add(j * L::COUNT));
            }
            for i in 0..R {
                let x = L::splat(*left.add(i * a.row));
                for j in 0..V {
                    sums[i][j] = sums[i][j].add_product(x, registers[j]);
                }
            }
            left = left.wrapping_add(a.step);
            right = right.wrapping_add(b.step);
        }
        sums
    }
}
