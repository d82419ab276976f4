//! Blocked matmuls against the chain of fused multiply-adds that each element is, bit for bit.

use half::bf16;

use super::{CONFLICTING, matmul};
use crate::float::Float;
use crate::gemm::Matrix;
use crate::gemm::rounded::{MAX_SUMS, MIN_ROWS};
use crate::gemm::tile::Tile;
use crate::simd::{BASELINE_FUSES, Level};
use crate::workers::Workers;

fn tiles() -> Vec<Tile> {
    let best = Level::detect();
    let levels = [
        Level::Portable,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2,
        #[cfg(target_arch = "x86_64")]
        Level::Avx512,
    ];
    levels.into_iter().filter(|level| *level <= best).map(Tile::of_level).collect()
}

fn values<T: Float>(len: usize, seed: usize) -> Vec<T> {
    (0..len).map(|i| T::narrow_from_f32(((i + seed) * 7919 % 2003) as f32 / 1000.0 - 1.0)).collect()
}

fn matrix<T>(data: &[T], rows: usize, columns: usize, transposed: bool) -> Matrix<'_, T> {
    if transposed { Matrix::transposed(data, rows) } else { Matrix::rows(data, columns) }
}

/// Sums of blocks of the depth, each a chain of its own, added to `c` in turn.
fn chains<T: Float>(
    tile: Tile,
    [m, n, k]: [usize; 3],
    a: Matrix<T>,
    b: Matrix<T>,
    c: Option<&[f32]>,
) -> Vec<f32> {
    let depth = k.div_ceil(k.div_ceil(tile.depth));
    let mut out = c.map_or(vec![0.0; m * n], <[f32]>::to_vec);
    for i in 0..m {
        for j in 0..n {
            for start in (0..k).step_by(depth) {
                let mut sum = 0f32;
                for p in start..k.min(start + depth) {
                    let (x, y) = (a.data[i * a.row + p * a.col], b.data[p * b.row + j * b.col]);
                    let (x, y) = (x.widen_to_f32(), y.widen_to_f32());
                    let fuses = tile != Tile::of_level(Level::Portable) || BASELINE_FUSES;
                    sum = if fuses { x.mul_add(y, sum) } else { x * y + sum };
                }
                out[i * n + j] = if start == 0 && c.is_none() { sum } else { out[i * n + j] + sum };
            }
        }
    }
    out
}

/// Sizes below, at and beyond the sizes of tiles, panels and blocks; small ones, which are not packed; long depths.
const SIZES: [[usize; 3]; 11] = [
    [8, 8, 1],
    [13, 33, 7],
    [32, 64, 40],
    [64, 512, 64],
    [31, 96, 384],
    [145, 50, 385],
    [150, 40, 800],
    [12, 2100, 10],
    [150, 35, 513],
    [25, 66, CONFLICTING],
    [300, 70, 65],
];

fn check<T: Float>(mut run: impl FnMut(Tile, [usize; 3], Matrix<T>, Matrix<T>, bool)) {
    for mnk @ [m, n, k] in SIZES {
        let (a, b) = (values::<T>(m * k, 1), values::<T>(k * n, 2));
        for bits in 0..8 {
            let a = matrix(&a, m, k, bits & 1 != 0);
            let b = matrix(&b, k, n, bits & 2 != 0);
            for tile in tiles() {
                run(tile, mnk, a, b, bits & 4 != 0);
            }
        }
    }
}

fn same_bits<T: Float>(got: &[T], expected: &[T]) -> bool {
    got.iter().zip(expected).all(|(x, y)| x.widen_to_f32().to_bits() == y.widen_to_f32().to_bits())
}

fn assert_matmuls_are_chains<T: Float>() {
    let workers = [1, 2, 5].map(|threads| Workers::new(threads).expect("threads start"));
    check::<T>(|tile, mnk, a, b, accumulate| {
        // Overwritten elements must not be read.
        let c = if accumulate {
            values::<f32>(mnk[0] * mnk[1], 3)
        } else {
            vec![f32::NAN; mnk[0] * mnk[1]]
        };
        let expected = chains(tile, mnk, a, b, accumulate.then_some(&c[..]));
        for workers in &workers {
            let mut got = c.clone();
            workers.install(|| matmul(workers, tile, mnk, a, b, accumulate, &mut got));
            assert!(
                same_bits(&got, &expected),
                "{tile:?} {mnk:?} on {} threads",
                workers.threads()
            );
        }
    });
}

#[test]
fn matmuls_of_f32_are_chains_of_multiply_adds() {
    assert_matmuls_are_chains::<f32>();
}

#[test]
fn matmuls_of_bf16_are_chains_of_multiply_adds() {
    assert_matmuls_are_chains::<bf16>();
}

#[test]
fn results_in_bf16_are_rounded_once() {
    let workers = [1, 3].map(|threads| Workers::new(threads).expect("threads start"));
    check::<bf16>(|tile, mnk, a, b, accumulate| {
        let nan = bf16::from_f32(f32::NAN);
        let c = if accumulate {
            values::<bf16>(mnk[0] * mnk[1], 3)
        } else {
            vec![nan; mnk[0] * mnk[1]]
        };
        let wide: Vec<f32> = c.iter().map(|c| c.widen_to_f32()).collect();
        let expected = chains(tile, mnk, a, b, accumulate.then_some(&wide[..]));
        let expected: Vec<bf16> = expected.into_iter().map(bf16::narrow_from_f32).collect();
        for workers in &workers {
            let mut got = c.clone();
            workers.install(|| matmul(workers, tile, mnk, a, b, accumulate, &mut got));
            assert!(
                same_bits(&got, &expected),
                "{tile:?} {mnk:?} on {} threads",
                workers.threads()
            );
        }
    });
}

#[test]
fn rows_beyond_the_scratch_are_rounded() {
    let mnk @ [m, n, k] = [2 * MIN_ROWS + 5, MAX_SUMS / MIN_ROWS, 3];
    let (a, b) = (values::<bf16>(m * k, 1), values::<bf16>(k * n, 2));
    let (a, b) = (Matrix::rows(&a, k), Matrix::rows(&b, n));
    for tile in tiles() {
        let expected: Vec<bf16> =
            chains(tile, mnk, a, b, None).into_iter().map(bf16::narrow_from_f32).collect();
        let mut got = vec![bf16::ZERO; m * n];
        matmul(&Workers::ONE, tile, mnk, a, b, false, &mut got);
        assert!(same_bits(&got, &expected), "{tile:?}");
    }
}
