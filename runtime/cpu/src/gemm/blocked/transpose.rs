//! Transposes rows into a panel in registers, four rows and four steps of the depth at a time.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m128, _mm_movehl_ps, _mm_movelh_ps, _mm_unpackhi_ps, _mm_unpacklo_ps};

use crate::float::Float;

/// Steps of the depth that are widened to f32 at a time.
const WIDENED: usize = 64;

/// Copies `W` rows of `data`, `row` elements apart, such that the elements of a step are contiguous in `panel`,
/// `[depth, W]`.
///
/// Few rows are read at a time: if `row` is a power of two, the lines of all rows map to one set of the cache, which
/// holds eight.
#[inline(always)]
pub fn transpose<T: Float, const W: usize>(data: &[T], row: usize, panel: &mut [f32]) {
    const { assert!(W.is_multiple_of(2)) };
    let steps = panel.as_chunks_mut::<W>().0;
    for first in (0..W).step_by(4) {
        let row_of = |i: usize| &data[(first + i) * row..][..steps.len()];
        if first + 4 <= W {
            transpose_rows([0, 1, 2, 3].map(row_of), first, steps);
        } else {
            transpose_rows([0, 1].map(row_of), first, steps);
        }
    }
}

/// Copies rows to the elements from `first` on of each step.
#[inline(always)]
fn transpose_rows<T: Float, const N: usize, const W: usize>(
    rows: [&[T]; N],
    first: usize,
    steps: &mut [[f32; W]],
) {
    if T::IS_F32 {
        let rows = rows.map(|row| T::in_place(row).expect("the elements are f32"));
        return transpose_f32(rows, first, steps);
    }
    let mut wide = [[0f32; WIDENED]; N];
    for (part, steps) in steps.chunks_mut(WIDENED).enumerate() {
        for (wide, row) in wide.iter_mut().zip(rows) {
            for (to, from) in wide.iter_mut().zip(&row[part * WIDENED..][..steps.len()]) {
                *to = from.widen_to_f32();
            }
        }
        transpose_f32(wide.each_ref().map(|row| &row[..steps.len()]), first, steps);
    }
}

#[inline(always)]
fn transpose_f32<const N: usize, const W: usize>(
    rows: [&[f32]; N],
    first: usize,
    steps: &mut [[f32; W]],
) {
    let groups = rows.map(|row| row.as_chunks::<4>().0);
    let (step_groups, rest) = steps.as_chunks_mut::<4>();
    for (p, to) in step_groups.iter_mut().enumerate() {
        // Rows that are missing are zeros, which are not copied.
        let square = std::array::from_fn(|i| if i < N { groups[i][p] } else { [0.0; 4] });
        for (to, column) in to.iter_mut().zip(transpose_square(square)) {
            to[first..][..N].copy_from_slice(&column[..N]);
        }
    }
    for (i, row) in rows.into_iter().enumerate() {
        for (x, to) in row[row.len() - rest.len()..].iter().zip(&mut *rest) {
            to[first + i] = *x;
        }
    }
}

/// Returns the columns of a matrix of four rows.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn transpose_square(rows: [[f32; 4]; 4]) -> [[f32; 4]; 4] {
    std::array::from_fn(|column| rows.map(|row| row[column]))
}

/// Returns the columns of a matrix of four rows.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn transpose_square(rows: [[f32; 4]; 4]) -> [[f32; 4]; 4] {
    let [a, b, c, d] = rows.map(bytemuck::cast::<_, __m128>);
    // SAFETY: all x86-64 CPUs have these instructions.
    let columns = unsafe {
        let (low_ab, low_cd) = (_mm_unpacklo_ps(a, b), _mm_unpacklo_ps(c, d));
        let (high_ab, high_cd) = (_mm_unpackhi_ps(a, b), _mm_unpackhi_ps(c, d));
        [
            _mm_movelh_ps(low_ab, low_cd),
            _mm_movehl_ps(low_cd, low_ab),
            _mm_movelh_ps(high_ab, high_cd),
            _mm_movehl_ps(high_cd, high_ab),
        ]
    };
    columns.map(bytemuck::cast)
}
