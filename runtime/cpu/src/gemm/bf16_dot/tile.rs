//! The innermost loops: tiles of the result whose sums stay in registers.

use std::arch::x86_64::{
    __m512, __m512bh, __m512i, _MM_HINT_T0, _mm_prefetch, _mm512_dpbf16_ps, _mm512_loadu_si512,
    _mm512_set1_epi32, _mm512_setzero_ps, _mm512_setzero_si512, _mm512_storeu_ps,
};
use std::marker::PhantomData;
use std::mem::transmute;

use half::bf16;

use super::{DotInstructions, LANES};
use crate::float::Float;
use crate::gemm::Matrix;

/// Rows of a tile.
const TILE_ROWS: usize = 8;

/// Registers in a row of a tile: of 32 registers, 24 hold sums, 3 a pair of the right operand, 1 a pair of the left
/// one.
const TILE_REGISTERS: usize = 3;

/// bf16 elements of a cache line.
const LINE: usize = 32;

/// The left operand, in rows of pairs or in packed strips.
#[derive(Clone, Copy)]
pub struct LeftPairs<'a> {
    data: &'a [bf16],
    /// Distance between rows of a group, in elements.
    row: usize,
    /// Distance between pairs of a row.
    step: usize,
    /// Distance between groups of [`LANES`] rows.
    group: usize,
}

impl<'a> LeftPairs<'a> {
    /// Rows of contiguous pairs.
    pub fn in_place(matrix: Matrix<'a, bf16>) -> Self {
        let Matrix { data, row, .. } = matrix;
        LeftPairs { data, row, step: 2, group: LANES * row }
    }

    /// Strips of `pairs` pairs, from [`pack_strips`](super::pack::pack_strips).
    pub fn packed(strips: &'a [u32], pairs: usize) -> Self {
        // In little-endian memory the first element of a pair comes first.
        let data = bytemuck::cast_slice(strips);
        LeftPairs { data, row: 2, step: 2 * LANES, group: 2 * LANES * pairs }
    }

    /// Returns all but the first `row` rows, a multiple of a tile's rows.
    pub fn skip_rows(self, row: usize) -> Self {
        let offset = row / LANES * self.group + row % LANES * self.row;
        LeftPairs { data: &self.data[offset..], ..self }
    }
}

/// The elements of a result; concurrent tasks write disjoint ones.
pub struct SharedOutput<'a, C> {
    data: *mut C,
    stride: usize,
    borrow: PhantomData<&'a mut [C]>,
}

impl<C> Clone for SharedOutput<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for SharedOutput<'_, C> {}

// SAFETY: stands for an exclusive borrow, whose elements are accessed by unsafe functions only; their callers keep
// concurrent accesses disjoint.
unsafe impl<C: Send> Send for SharedOutput<'_, C> {}
// SAFETY: as above.
unsafe impl<C: Send> Sync for SharedOutput<'_, C> {}

impl<'a, C> SharedOutput<'a, C> {
    /// Rows of `stride` elements.
    pub fn new(c: &'a mut [C], stride: usize) -> Self {
        SharedOutput { data: c.as_mut_ptr(), stride, borrow: PhantomData }
    }

    /// Returns the part of the result from `row` and `column` on.
    ///
    /// # Safety
    /// They are inside the result.
    pub unsafe fn offset_to(self, row: usize, column: usize) -> Self {
        // SAFETY: as the caller promises.
        SharedOutput { data: unsafe { self.data.add(row * self.stride + column) }, ..self }
    }

    /// Returns `columns` elements of a row.
    ///
    /// # Safety
    /// They are inside the result, and nothing else accesses them.
    unsafe fn row(&mut self, row: usize, columns: usize) -> &mut [C] {
        // SAFETY: as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(row * self.stride), columns) }
    }
}

/// Computes `rows x columns` elements over `pairs` pairs of the contraction, added to the result if `add`.
///
/// # Safety
/// The rows and columns from the beginning of `output` on are inside the result, and nothing else accesses them.
pub unsafe fn multiply_tiles<C: Float>(
    _: DotInstructions,
    sizes: [usize; 3],
    left: LeftPairs,
    strips: &[u32],
    output: SharedOutput<C>,
    add: bool,
) {
    // SAFETY: the CPU has the instructions, as the first argument proves; otherwise as the caller promises.
    unsafe { multiply_all(sizes, left, strips, output, add) }
}

/// Computes rows of tiles: eight rows of the left operand stay in the first-level cache.
///
/// # Safety
/// As [`multiply_tiles`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,avx512bf16")]
unsafe fn multiply_all<C: Float>(
    [rows, columns, pairs]: [usize; 3],
    left: LeftPairs,
    strips: &[u32],
    output: SharedOutput<C>,
    add: bool,
) {
    for row in (0..rows).step_by(TILE_ROWS) {
        let tile_rows = TILE_ROWS.min(rows - row);
        let tile_left = left.skip_rows(row);
        // Prefetched while the first tile of this row of tiles is computed.
        let mut ahead =
            if row + TILE_ROWS < rows { left.skip_rows(row + TILE_ROWS) } else { tile_left };
        let mut column = 0;
        while column < columns {
            // Tiles of a row are equally wide, up to one register.
            let registers = (columns - column).div_ceil(LANES);
            let width = registers.div_ceil(registers.div_ceil(TILE_REGISTERS));
            // SAFETY: this place is inside the result, as the caller promises.
            let tile_output = unsafe { output.offset_to(row, column) };
            let tile = PairTile {
                pairs,
                columns: (width * LANES).min(columns - column),
                left: tile_left,
                ahead,
                strips: &strips[column * pairs..],
                output: tile_output,
                add,
            };
            macro_rules! by_rows {
                ($($rows:literal)*) => {
                    match (tile_rows, width) {
                        $(
                            // SAFETY: as the caller promises, here and below.
                            ($rows, 3) => unsafe { tile.compute_tile::<$rows, 3>() },
                            // SAFETY: as above.
                            ($rows, 2) => unsafe { tile.compute_tile::<$rows, 2>() },
                            // SAFETY: as above.
                            ($rows, 1) => unsafe { tile.compute_tile::<$rows, 1>() },
                        )*
                        size => unreachable!("a tile of {size:?} registers"),
                    }
                };
            }
            by_rows!(1 2 3 4 5 6 7 8);
            ahead = tile_left;
            column += width * LANES;
        }
    }
}

/// A tile of the result.
struct PairTile<'a, C> {
    pairs: usize,
    columns: usize,
    left: LeftPairs<'a>,
    /// Rows of the left operand to prefetch.
    ahead: LeftPairs<'a>,
    strips: &'a [u32],
    output: SharedOutput<'a, C>,
    add: bool,
}

impl<C: Float> PairTile<'_, C> {
    /// Computes a tile of `R` rows and `V` registers.
    ///
    /// # Safety
    /// The tile is inside the result, and nothing else accesses it.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,avx512bf16")]
    unsafe fn compute_tile<const R: usize, const V: usize>(mut self) {
        for i in 0..R {
            for j in 0..V {
                let to = self.output.data.wrapping_add(i * self.output.stride + j * LANES);
                _mm_prefetch::<_MM_HINT_T0>(to.cast());
            }
        }
        let sums = self.sum_pairs::<R, V>();
        for (i, sums) in sums.iter().enumerate() {
            // SAFETY: as the caller promises.
            let row = unsafe { self.output.row(i, self.columns) };
            for (part, sum) in row.chunks_mut(LANES).zip(sums) {
                store_sums(*sum, part, self.add);
            }
        }
    }

    /// Returns the sums of the tile, by pointers: with a check in each step, they would not stay in registers.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,avx512bf16")]
    #[allow(clippy::needless_range_loop)]
    fn sum_pairs<const R: usize, const V: usize>(&self) -> [[__m512; V]; R] {
        let PairTile { pairs, left, ahead, strips, .. } = *self;
        assert!(pairs > 0 && (R - 1) * left.row + (pairs - 1) * left.step + 2 <= left.data.len());
        assert!(V * LANES * pairs <= strips.len());
        let (mut a, mut b) = (left.data.as_ptr(), strips.as_ptr());
        let mut sums = [[_mm512_setzero_ps(); V]; R];
        for p in 0..pairs {
            _mm_prefetch::<_MM_HINT_T0>(ahead.prefetched_line(p).cast());
            // SAFETY: all pairs that are read are inside their slices, as asserted; the pointers may end up beyond
            // them, where they are not read.
            unsafe {
                let mut right = [transmute::<__m512i, __m512bh>(_mm512_setzero_si512()); V];
                for j in 0..V {
                    right[j] = transmute::<__m512i, __m512bh>(_mm512_loadu_si512(
                        b.add(j * LANES * pairs).cast(),
                    ));
                }
                for i in 0..R {
                    let pair =
                        _mm512_set1_epi32(a.add(i * left.row).cast::<i32>().read_unaligned());
                    let pair = transmute::<__m512i, __m512bh>(pair);
                    for j in 0..V {
                        sums[i][j] = _mm512_dpbf16_ps(sums[i][j], pair, right[j]);
                    }
                }
            }
            (a, b) = (a.wrapping_add(left.step), b.wrapping_add(LANES));
        }
        sums
    }
}

impl LeftPairs<'_> {
    /// Returns the address that is prefetched in step `p`: one line of each of eight rows after the other, or of a
    /// strip.
    #[inline(always)]
    fn prefetched_line(&self, p: usize) -> *const bf16 {
        let offset =
            if self.step == 2 { p % TILE_ROWS * self.row + p / TILE_ROWS * LINE } else { p * LINE };
        self.data.as_ptr().wrapping_add(offset)
    }
}

/// Rounds up to 16 sums to elements of the result, or adds them before.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn store_sums<C: Float>(sums: __m512, to: &mut [C], add: bool) {
    let mut values = [0f32; LANES];
    // SAFETY: the array is as long as a register.
    unsafe { _mm512_storeu_ps(values.as_mut_ptr(), sums) };
    match to.first_chunk_mut::<LANES>() {
        // A loop of its own, since its length is known.
        Some(to) => {
            for (c, sum) in to.iter_mut().zip(values) {
                store_sum(sum, c, add);
            }
        }
        None => {
            for (c, sum) in to.iter_mut().zip(values) {
                store_sum(sum, c, add);
            }
        }
    }
}

#[inline(always)]
fn store_sum<C: Float>(sum: f32, to: &mut C, add: bool) {
    *to = C::narrow_from_f32(if add { to.widen_to_f32() + sum } else { sum });
}
