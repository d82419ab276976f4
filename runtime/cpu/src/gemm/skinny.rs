//! Matmuls with few rows or columns: sampling one token multiplies vectors.
//!
//! Most of a tile would be wasted, and packing would take longer than the products. So the large operand is read once,
//! where it is and in the order of addresses.

use super::{MIN_SIDE, Matrix};
use crate::float::Float;
use crate::math::{LANES, fold_lanes};
use crate::scratch::with_scratch;
use crate::simd::dispatch;
use crate::workers::{Rows, Workers};
use meshwright_backend::math::fma;

/// Computes what [`Matmul::matmul`](super::Matmul::matmul) does, for results with fewer than [`MIN_SIDE`] rows or
/// columns.
pub(super) fn matmul<T: Float, C: Float>(
    workers: &Workers,
    [m, n, k]: [usize; 3],
    a: Matrix<T>,
    b: Matrix<T>,
    accumulate: bool,
    c: &mut [C],
) {
    let is_row = m <= n;
    let (small, few, large, many) =
        if is_row { (a, m, b.transpose(), n) } else { (b.transpose(), n, a, m) };
    with_scratch(few * k + many * few, |scratch| {
        let (rows, sums) = scratch.split_at_mut(few * k);
        for (index, row) in rows.chunks_exact_mut(k).enumerate() {
            for (p, x) in row.iter_mut().enumerate() {
                *x = small.data[index * small.row + p * small.col].widen_to_f32();
            }
        }
        workers.rows(many, k, Rows(&mut *sums, few), |range, Rows(sums, _)| {
            let data = &large.data[range.start * large.row..];
            products(Matrix { data, ..large }, few, rows, sums);
        });
        for (i, sums) in sums.chunks_exact(few).enumerate() {
            for (j, sum) in sums.iter().enumerate() {
                let c = &mut c[if is_row { j * n + i } else { i * n + j }];
                let start = if accumulate { c.widen_to_f32() } else { 0.0 };
                *c = C::narrow_from_f32(start + sum);
            }
        }
    });
}

dispatch! {
    /// Writes the products of each row of `large`, `[many, k]`, with `few` contiguous rows to `sums`, `[many, few]`.
    fn products<const FMA: bool, T: Float>(
        large: Matrix<T>,
        few: usize,
        rows: &[f32],
        sums: &mut [f32],
    ) {
        let k = rows.len() / few;
        if large.col == 1 {
            for (index, sums) in sums.chunks_exact_mut(few).enumerate() {
                let row = &large.data[index * large.row..][..k];
                for (sum, other) in sums.iter_mut().zip(rows.chunks_exact(k)) {
                    *sum = dot::<FMA, T>(row, other);
                }
            }
        } else {
            assert_eq!(large.row, 1, "one of the strides is 1");
            for (index, sums) in sums.chunks_mut(COLUMNS * few).enumerate() {
                let data = &large.data[index * COLUMNS..];
                add_steps::<FMA, T>(Matrix { data, ..large }, few, rows, sums);
            }
        }
    }
}

/// The dot product of two rows: sums of every [`LANES`]-th product, added in pairs, and the products of the rest.
#[inline(always)]
fn dot<const FMA: bool, T: Float>(x: &[T], y: &[f32]) -> f32 {
    let mut sums = [0f32; LANES];
    let (x, x_rest) = x.as_chunks::<LANES>();
    let (y, y_rest) = y.as_chunks::<LANES>();
    for (x, y) in x.iter().zip(y) {
        for lane in 0..LANES {
            sums[lane] = fma::<FMA>(x[lane].widen_to_f32(), y[lane], sums[lane]);
        }
    }
    let rest = x_rest.iter().zip(y_rest);
    let sum = fold_lanes(sums, |a, b| a + b);
    rest.fold(sum, |sum, (x, y)| fma::<FMA>(x.widen_to_f32(), *y, sum))
}

/// Rows of the large operand whose sums are computed together: they stay in the first-level cache.
const COLUMNS: usize = 256;

/// Computes up to [`COLUMNS`] rows of a large operand whose steps are contiguous, some steps at a time. Each element is
/// one chain of products, in the order of steps.
#[inline(always)]
fn add_steps<const FMA: bool, T: Float>(
    large: Matrix<T>,
    few: usize,
    rows: &[f32],
    sums: &mut [f32],
) {
    const STEPS: usize = 4;
    let (k, many) = (rows.len() / few, sums.len() / few);
    let mut chains = [[0f32; COLUMNS]; MIN_SIDE - 1];
    let step = |p: usize| &large.data[p * large.col..][..many];
    for first in (0..k).step_by(STEPS) {
        let count = STEPS.min(k - first);
        for (chains, row) in chains.iter_mut().zip(rows.chunks_exact(k)) {
            if count == STEPS {
                let x: [&[T]; STEPS] = std::array::from_fn(|i| step(first + i));
                let y: [f32; STEPS] = std::array::from_fn(|i| row[first + i]);
                for (at, chain) in chains[..many].iter_mut().enumerate() {
                    for i in 0..STEPS {
                        *chain = fma::<FMA>(x[i][at].widen_to_f32(), y[i], *chain);
                    }
                }
            } else {
                for (p, y) in row.iter().enumerate().skip(first) {
                    for (chain, x) in chains[..many].iter_mut().zip(step(p)) {
                        *chain = fma::<FMA>(x.widen_to_f32(), *y, *chain);
                    }
                }
            }
        }
    }
    for (at, sums) in sums.chunks_exact_mut(few).enumerate() {
        for (sum, chain) in sums.iter_mut().zip(&chains) {
            *sum = chain[at];
        }
    }
}
