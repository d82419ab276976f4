//! The innermost loops of a matmul: one tile of the result in registers, and all tiles of a block.
//!
//! Each element is one chain of fused multiply-adds over the depth of a block, so its bits depend on the tile and the
//! instruction set by [`depth`](crate::gemm::tile::Tile::depth) only.

use crate::gemm::lanes::Lanes;
use crate::gemm::tile::{REGISTERS, TileKernel};
use crate::simd::prefetch;

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

/// `c = a * b` over `depth`, or `c += a * b` if `add`.
///
/// The last panel of `b` may reach beyond the columns of `c`, and is read as a whole.
pub struct Block<'a> {
    pub depth: usize,
    pub a: PackedLeft<'a>,
    pub b: PackedRight<'a>,
    pub c: ResultBlock<'a>,
    pub add: bool,
}

impl TileKernel for Block<'_> {
    /// Computes the tiles of one panel of `b` consecutively, so that the panel stays in the first-level cache.
    #[inline(always)]
    unsafe fn run<L: Lanes, const R: usize, const W: usize>(self) {
        let Block { depth, a, b, c, add } = self;
        for (panel, column) in (0..c.columns).step_by(W).enumerate() {
            let b = b.panel(panel);
            let columns = W.min(c.columns - column);
            for (panel, rows) in c.data.chunks_mut(R * c.stride).enumerate() {
                let a = PackedLeft { data: &a.data[panel * a.panel..], ..a };
                let part = ResultBlock { data: rows, start: c.start + column, columns, ..c };
                // SAFETY: as the caller says.
                unsafe { tile_of::<L, R>(depth, a, b, part, add) }
            }
        }
    }
}

/// Computes a tile of the last rows of a block, so that no rows are wasted.
#[inline(always)]
unsafe fn tile_of<L: Lanes, const R: usize>(
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
                rows if rows == R => unsafe { compute_tile::<L, R>(depth, a, b, c, add) },
                // SAFETY: as above.
                $($rows if $rows < R => unsafe { compute_tile::<L, $rows>(depth, a, b, c, add) },)*
                rows => unreachable!("{rows} rows in a tile of {R}"),
            }
        };
    }
    by_rows!(1 2 3 4 5 6 7 8 9 10 11)
}

#[inline(always)]
#[allow(clippy::needless_range_loop)]
unsafe fn compute_tile<L: Lanes, const R: usize>(
    depth: usize,
    a: PackedLeft,
    b: PackedRight,
    c: ResultBlock,
    add: bool,
) {
    let width = REGISTERS * L::COUNT;
    for row in c.data.chunks(c.stride) {
        for line in row[c.start..][..c.columns].chunks(LINE) {
            prefetch::<1>(line.as_ptr().cast());
        }
    }
    // SAFETY: as the caller says, here and below.
    let sums = unsafe {
        if a.row == 1 {
            sums_of::<L, R>(depth, PackedLeft { row: 1, ..a }, b)
        } else {
            sums_of::<L, R>(depth, a, b)
        }
    };
    for i in 0..R {
        let row = &mut c.data[i * c.stride + c.start..][..c.columns];
        if c.columns == width {
            for j in 0..REGISTERS {
                let to = &mut row[j * L::COUNT..][..L::COUNT];
                // SAFETY: as above.
                unsafe {
                    if add { L::load(to.as_ptr()).add(sums[i][j]) } else { sums[i][j] }
                        .store(to.as_mut_ptr())
                };
            }
        } else {
            let mut whole = [[0f32; 16]; REGISTERS];
            for j in 0..REGISTERS {
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
unsafe fn sums_of<L: Lanes, const R: usize>(
    depth: usize,
    a: PackedLeft,
    b: PackedRight,
) -> [[L; REGISTERS]; R] {
    assert!(depth > 0 && (R - 1) * a.row + (depth - 1) * a.step < a.data.len());
    assert!((depth - 1) * b.step + REGISTERS * L::COUNT <= b.data.len());
    let (mut left, mut right) = (a.data.as_ptr(), b.data.as_ptr());
    // SAFETY: the CPU has the instructions; all that is read lies inside of the slices, as asserted. The pointers
    // may end up beyond them, where they are not read.
    unsafe {
        let mut sums = [[L::zero(); REGISTERS]; R];
        for _ in 0..depth {
            let mut registers = [L::zero(); REGISTERS];
            for j in 0..REGISTERS {
                registers[j] = L::load(right.add(j * L::COUNT));
            }
            for i in 0..R {
                let x = L::splat(*left.add(i * a.row));
                for j in 0..REGISTERS {
                    sums[i][j] = sums[i][j].add_product(x, registers[j]);
                }
            }
            left = left.wrapping_add(a.step);
            right = right.wrapping_add(b.step);
        }
        sums
    }
}
