//! Packing of operands into strips of pairs.
//!
//! A strip holds [`LANES`] rows of a matrix (or columns of its transpose): one pair of the contraction of all rows
//! after the other. A pair is a `u32` with its first element in the lower half. Missing rows, and the missing second
//! element of the last pair, are zero.

use std::arch::x86_64::{
    __m512i, _mm512_loadu_si512, _mm512_maskz_loadu_epi16, _mm512_permutex2var_epi16,
    _mm512_setzero_si512, _mm512_shuffle_i32x4, _mm512_storeu_si512, _mm512_unpackhi_epi32,
    _mm512_unpackhi_epi64, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
};
use std::ops::Range;

use half::bf16;

use super::{DotInstructions, LANES};
use crate::gemm::Matrix;

/// bf16 elements of a register.
const ELEMENTS: usize = 2 * LANES;

/// Packs rows `lead` and columns `depth` of `matrix`, whose rows or columns are contiguous.
pub fn pack_strips(
    _: DotInstructions,
    matrix: Matrix<bf16>,
    lead: Range<usize>,
    depth: Range<usize>,
    strips: &mut [u32],
) {
    // SAFETY: the CPU has the instructions, as the first argument proves.
    unsafe { pack_all(matrix, lead, depth, strips) }
}

#[target_feature(enable = "avx512f,avx512bw")]
fn pack_all(matrix: Matrix<bf16>, lead: Range<usize>, depth: Range<usize>, strips: &mut [u32]) {
    let pairs = depth.len().div_ceil(2);
    assert_eq!(strips.len(), lead.len().next_multiple_of(LANES) * pairs, "whole strips");
    let data = &matrix.data[lead.start * matrix.row + depth.start * matrix.col..];
    if matrix.col == 1 {
        for (strip, at) in
            strips.chunks_exact_mut(pairs * LANES).zip((0..lead.len()).step_by(LANES))
        {
            let rows = LANES.min(lead.len() - at);
            transpose_pairs(&data[at * matrix.row..], matrix.row, [rows, depth.len()], strip);
        }
    } else {
        assert_eq!(matrix.row, 1, "rows or columns are contiguous");
        let two_strips = strips.chunks_mut(2 * pairs * LANES);
        for (strips, at) in two_strips.zip((0..lead.len()).step_by(ELEMENTS)) {
            let rows = ELEMENTS.min(lead.len() - at);
            interleave_pairs(&data[at..], matrix.col, [rows, depth.len()], strips);
        }
    }
}

/// Indices of the pairs of the lower halves of two registers, and of the upper halves.
const LOWER_PAIRS: [u16; ELEMENTS] = pair_indices(0);
const UPPER_PAIRS: [u16; ELEMENTS] = pair_indices(LANES);

/// Returns indices of pairs from `first` on: `i` is an element of the first register, `32 + i` of the second one.
const fn pair_indices(first: usize) -> [u16; ELEMENTS] {
    let mut indices = [0; ELEMENTS];
    let mut i = 0;
    while i < ELEMENTS {
        indices[i] = (first + i / 2 + i % 2 * ELEMENTS) as u16;
        i += 1;
    }
    indices
}

/// Packs one or two strips from elements of the contraction that are `stride` apart.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn interleave_pairs(data: &[bf16], stride: usize, [rows, depth]: [usize; 2], strips: &mut [u32]) {
    let (lower, upper) = (load_indices(&LOWER_PAIRS), load_indices(&UPPER_PAIRS));
    let (first_strip, second_strip) = strips.split_at_mut(depth.div_ceil(2) * LANES);
    let mut second_strip = second_strip.chunks_exact_mut(LANES);
    for (p, to) in first_strip.chunks_exact_mut(LANES).enumerate() {
        let first = load_elements(&data[2 * p * stride..][..rows]);
        let second = if 2 * p + 1 < depth {
            load_elements(&data[(2 * p + 1) * stride..][..rows])
        } else {
            _mm512_setzero_si512()
        };
        store_pairs(_mm512_permutex2var_epi16(first, lower, second), to);
        if let Some(to) = second_strip.next() {
            store_pairs(_mm512_permutex2var_epi16(first, upper, second), to);
        }
    }
}

/// Packs a strip from rows that are `stride` apart, in which the elements of the contraction are contiguous.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
#[allow(clippy::needless_range_loop)]
fn transpose_pairs(data: &[bf16], stride: usize, [rows, depth]: [usize; 2], strip: &mut [u32]) {
    for (square, strip) in strip.chunks_mut(LANES * LANES).enumerate() {
        let start = square * ELEMENTS;
        let len = ELEMENTS.min(depth - start);
        let mut registers = [_mm512_setzero_si512(); LANES];
        for i in 0..rows {
            registers[i] = load_elements(&data[i * stride + start..][..len]);
        }
        let columns = transpose_square(registers);
        for (to, column) in strip.chunks_exact_mut(LANES).zip(columns) {
            store_pairs(column, to);
        }
    }
}

/// Transposes 16 x 16 pairs.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose_square(rows: [__m512i; LANES]) -> [__m512i; LANES] {
    // A register has four parts of four pairs. First, squares of four rows and four columns are transposed in place.
    let mut halves = rows;
    for i in 0..8 {
        halves[2 * i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
        halves[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
    }
    // Part `p` of `squares[4 * i + j]` is column `4 * p + j` of rows `4 * i` to `4 * i + 3`.
    let mut squares = halves;
    for i in 0..4 {
        for j in 0..2 {
            let (upper, lower) = (halves[4 * i + j], halves[4 * i + j + 2]);
            squares[4 * i + 2 * j] = _mm512_unpacklo_epi64(upper, lower);
            squares[4 * i + 2 * j + 1] = _mm512_unpackhi_epi64(upper, lower);
        }
    }
    // Then the parts are collected.
    let mut columns = squares;
    for j in 0..4 {
        let [a, b, c, d] = [squares[j], squares[4 + j], squares[8 + j], squares[12 + j]];
        let (even, odd) = (_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xdd>(a, b));
        let (more_even, more_odd) =
            (_mm512_shuffle_i32x4::<0x88>(c, d), _mm512_shuffle_i32x4::<0xdd>(c, d));
        columns[j] = _mm512_shuffle_i32x4::<0x88>(even, more_even);
        columns[8 + j] = _mm512_shuffle_i32x4::<0xdd>(even, more_even);
        columns[4 + j] = _mm512_shuffle_i32x4::<0x88>(odd, more_odd);
        columns[12 + j] = _mm512_shuffle_i32x4::<0xdd>(odd, more_odd);
    }
    columns
}

/// Loads up to 32 elements, followed by zeros.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn load_elements(from: &[bf16]) -> __m512i {
    let mask = u32::MAX >> (ELEMENTS - from.len());
    // SAFETY: the mask has one bit for each element of the slice, and nothing else is read.
    unsafe { _mm512_maskz_loadu_epi16(mask, from.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_indices(from: &[u16; ELEMENTS]) -> __m512i {
    // SAFETY: the array is as long as a register.
    unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store_pairs(pairs: __m512i, to: &mut [u32]) {
    let to = to.first_chunk_mut::<LANES>().expect("a pair for each lane");
    // SAFETY: the array is as long as a register.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), pairs) }
}
