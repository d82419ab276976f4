//! Matmuls with few rows or columns: sampling one token multiplies vectors.
//!
//! Most of a tile would be wasted, and packing would take longer than the products. So the large operand is read once,
//! where it is and in the order of addresses.

use super::Matrix;
use super::lanes::Lanes;
use super::tile::{Tile, TileKernel};
use crate::float::Float;
use crate::math::{LANES, fold_lanes};
use crate::scratch::with_scratch;
use crate::workers::{Rows, Workers};
use meshwright_backend::math::fma;

/// Computes what [`matmul`](super::matmul) does, for results with fewer than
/// [`MIN_SIDE`](super::MIN_SIDE) rows or columns.
pub(super) fn matmul<T: Float, C: Float>(
    workers: &Workers,
    [m, n, k]: [usize; 3],
    a: Matrix<T>,
    b: Matrix<T>,
    accumulate: bool,
    c: &mut [C],
) {
    let tile = Tile::detect();
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
            tile.run(Products { large: Matrix { data, ..large }, few, rows, sums });
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

/// Writes the products of each row of `large`, `[many, k]`, with `few` contiguous rows to `sums`, `[many, few]`.
struct Products<'a, T> {
    large: Matrix<'a, T>,
    few: usize,
    rows: &'a [f32],
    sums: &'a mut [f32],
}

impl<T: Float> TileKernel for Products<'_, T> {
    #[inline(always)]
    unsafe fn run<L: Lanes, const R: usize, const W: usize>(self) {
        let Products { large, few, rows, sums } = self;
        let k = rows.len() / few;
        if large.col == 1 {
            for (index, sums) in sums.chunks_exact_mut(few).enumerate() {
                let row = &large.data[index * large.row..][..k];
                for (sum, other) in sums.iter_mut().zip(rows.chunks_exact(k)) {
                    // SAFETY: the caller vouches for the instructions.
                    *sum = unsafe { dot::<L, T>(row, other) };
                }
            }
        } else {
            assert_eq!(large.row, 1, "one of the strides is 1");
            let columns = MAX_CHAINS / few / LANES * LANES;
            for (index, sums) in sums.chunks_mut(columns * few).enumerate() {
                let data = &large.data[index * columns..];
                add_steps::<L, T>(Matrix { data, ..large }, few, rows, sums);
            }
        }
    }
}

/// Sums of a dot product that are computed at a time: they stay in registers.
const MAX_REGISTERS: usize = 8;

/// The dot product of two rows: sums of every [`LANES`]-th product, added in pairs, and the products of the rest.
///
/// # Safety
/// The CPU has the instructions of `L`.
#[inline(always)]
unsafe fn dot<L: Lanes, T: Float>(x: &[T], y: &[f32]) -> f32 {
    let (x, x_rest) = x.as_chunks::<LANES>();
    let (y, y_rest) = y.as_chunks::<LANES>();
    let registers = MAX_REGISTERS.min(LANES / L::COUNT);
    let mut lanes = [0f32; LANES];
    for first in (0..LANES).step_by(registers * L::COUNT) {
        // SAFETY: the caller vouches for the instructions, and each register holds a part of the lanes.
        unsafe {
            let mut sums = [L::zero(); MAX_REGISTERS];
            for (x, y) in x.iter().zip(y) {
                let (x, y) = (x.as_ptr().add(first), y.as_ptr().add(first));
                for (j, sum) in sums[..registers].iter_mut().enumerate() {
                    let (x, y) = (L::widen(x.add(j * L::COUNT)), L::load(y.add(j * L::COUNT)));
                    *sum = sum.add_product(x, y);
                }
            }
            for (j, sum) in sums[..registers].iter().enumerate() {
                sum.store(lanes.as_mut_ptr().add(first + j * L::COUNT));
            }
        }
    }
    let sum = fold_lanes(lanes, |a, b| a + b);
    x_rest.iter().zip(y_rest).fold(sum, |sum, (x, y)| multiply_add::<L>(x.widen_to_f32(), *y, sum))
}

/// Returns `x * y + sum`, rounded as often as the instruction set rounds it.
#[inline(always)]
fn multiply_add<L: Lanes>(x: f32, y: f32, sum: f32) -> f32 {
    if L::FUSES { fma::<true>(x, y, sum) } else { fma::<false>(x, y, sum) }
}

/// Sums of a large operand that are computed together: they stay in the first-level cache.
const MAX_CHAINS: usize = 2048;

/// Computes some rows of a large operand whose steps are contiguous, some steps at a time. Each element is one chain
/// of products, in the order of steps.
#[inline(always)]
fn add_steps<L: Lanes, T: Float>(large: Matrix<T>, few: usize, rows: &[f32], sums: &mut [f32]) {
    const STEPS: usize = 8;
    let (k, many) = (rows.len() / few, sums.len() / few);
    let mut chains = [0f32; MAX_CHAINS];
    let step = |p: usize| &large.data[p * large.col..][..many];
    for first in (0..k).step_by(STEPS) {
        let count = STEPS.min(k - first);
        for (chains, row) in chains.chunks_exact_mut(many).zip(rows.chunks_exact(k)) {
            if count == STEPS {
                let x: [&[T]; STEPS] = std::array::from_fn(|i| step(first + i));
                let y: [f32; STEPS] = std::array::from_fn(|i| row[first + i]);
                for (at, chain) in chains.iter_mut().enumerate() {
                    for i in 0..STEPS {
                        *chain = multiply_add::<L>(x[i][at].widen_to_f32(), y[i], *chain);
                    }
                }
            } else {
                for (p, y) in row.iter().enumerate().skip(first) {
                    for (chain, x) in chains.iter_mut().zip(step(p)) {
                        *chain = multiply_add::<L>(x.widen_to_f32(), *y, *chain);
                    }
                }
            }
        }
    }
    for (at, sums) in sums.chunks_exact_mut(few).enumerate() {
        for (sum, chains) in sums.iter_mut().zip(chains.chunks_exact(many)) {
            *sum = chains[at];
        }
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;
    use crate::simd::at_every_isa;
    use crate::simd::{BASELINE_FUSES, Level};

    fn values<T: Float>(len: usize, seed: usize) -> Vec<T> {
        (0..len)
            .map(|i| T::narrow_from_f32(((i + seed) * 7919 % 2003) as f32 / 1e3 - 1.0))
            .collect()
    }

    /// Returns an element in the documented order of additions: in lanes if `in_lanes`, else one by one.
    fn element(products: &[(f32, f32)], in_lanes: bool) -> f32 {
        let fuses = Level::detect() != Level::Portable || BASELINE_FUSES;
        let add =
            |sum: f32, (x, y): &(f32, f32)| if fuses { x.mul_add(*y, sum) } else { x * y + sum };
        let (whole, rest) =
            products.split_at(if in_lanes { products.len() / LANES * LANES } else { 0 });
        let lanes =
            std::array::from_fn(|lane| whole.iter().skip(lane).step_by(LANES).fold(0.0, add));
        rest.iter().fold(fold_lanes(lanes, |a, b| a + b), add)
    }

    fn assert_order_of_additions<T: Float>() {
        for [m, n, k] in [[1, 70, 200], [3, 700, 64], [7, 300, 131], [100, 1, 64], [2200, 2, 9]] {
            let (a, b) = (values::<T>(m * k, 1), values::<T>(k * n, 2));
            for bits in 0..4 {
                let (trans_a, trans_b) = (bits & 1 != 0, bits & 2 != 0);
                let a = if trans_a { Matrix::transposed(&a, m) } else { Matrix::rows(&a, k) };
                let b = if trans_b { Matrix::transposed(&b, k) } else { Matrix::rows(&b, n) };
                let in_lanes = if m <= n { trans_b } else { !trans_a };
                at_every_isa(|| {
                    let mut c = vec![f32::NAN; m * n];
                    matmul(&Workers::ONE, [m, n, k], a, b, false, &mut c);
                    for (at, c) in c.into_iter().enumerate() {
                        let (i, j) = (at / n, at % n);
                        let x = |p: usize| a.data[i * a.row + p * a.col].widen_to_f32();
                        let y = |p: usize| b.data[p * b.row + j * b.col].widen_to_f32();
                        let products: Vec<_> = (0..k).map(|p| (x(p), y(p))).collect();
                        let expected = element(&products, in_lanes);
                        assert_eq!(c, expected, "{:?} {m} x {n} x {k}, {bits}", Level::detect());
                    }
                });
            }
        }
    }

    #[test]
    fn additions_have_one_order() {
        assert_order_of_additions::<f32>();
        assert_order_of_additions::<bf16>();
    }
}
