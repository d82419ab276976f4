//! bf16 matmuls against exact integers and f64; nothing is tested on CPUs without AVX512-BF16.

use half::bf16;

use super::{DotInstructions, MAX_DEPTH, MAX_PACKED_ROWS, MAX_WIDTH, TaskGrid, matmul};
use crate::float::Float;
use crate::gemm::Matrix;
use crate::simd::Level;
use crate::workers::Workers;

/// Calls `test` if the CPU has the instructions.
fn with_dots(test: impl FnOnce(DotInstructions)) {
    if let Some(dots) = DotInstructions::at_level(Level::detect()) {
        test(dots);
    }
}

fn matrix<T>(data: &[T], rows: usize, columns: usize, transposed: bool) -> Matrix<'_, T> {
    if transposed { Matrix::transposed(data, rows) } else { Matrix::rows(data, columns) }
}

/// Integers from -3 to 3, whose sums are exact in f32.
fn integers(len: usize, seed: usize) -> Vec<bf16> {
    (0..len).map(|i| bf16::from_f32(((i + seed) * 7919 % 7) as f32 - 3.0)).collect()
}

fn random_values(len: usize, seed: u64) -> Vec<bf16> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bf16::narrow_from_f32((state >> 40) as f32 / (1 << 23) as f32 - 1.0)
    };
    std::iter::repeat_with(next).take(len).collect()
}

fn reference([m, n, k]: [usize; 3], a: Matrix<bf16>, b: Matrix<bf16>, c: &[f64]) -> Vec<f64> {
    let mut sums = c.to_vec();
    for (at, sum) in sums.iter_mut().enumerate().take(m * n) {
        let (i, j) = (at / n, at % n);
        for p in 0..k {
            let (x, y) = (a.data[i * a.row + p * a.col], b.data[p * b.row + j * b.col]);
            *sum += f64::from(x.widen_to_f32()) * f64::from(y.widen_to_f32());
        }
    }
    sums
}

/// Sizes below, at and beyond the sizes of pairs, strips, tiles, tasks and blocks.
const SIZES: [[usize; 3]; 14] = [
    [1, 1, 1],
    [8, 8, 2],
    [9, 17, 3],
    [16, 48, 32],
    [13, 33, 7],
    [40, 50, 63],
    [65, 100, 64],
    [7, 130, 66],
    [33, 2 * MAX_WIDTH + 31, 18],
    [MAX_PACKED_ROWS + 19, 20, 5],
    [2 * MAX_PACKED_ROWS + 1, 9, 6],
    [11, 40, MAX_DEPTH],
    [10, 35, MAX_DEPTH + 1],
    [19, 21, 2 * MAX_DEPTH + 34],
];

/// Calls `test` for all sizes, layouts, and with and without accumulation.
fn for_all_cases(test: impl Fn([usize; 3], [bool; 2], bool)) {
    for mnk in SIZES {
        for bits in 0..8 {
            test(mnk, [bits & 1 != 0, bits & 2 != 0], bits & 4 != 0);
        }
    }
}

#[test]
fn matmuls_of_integers_are_exact() {
    let workers = [1, 2, 5].map(|threads| Workers::new(threads).expect("threads start"));
    with_dots(|dots| {
        for_all_cases(|mnk @ [m, n, k], [trans_a, trans_b], accumulate| {
            let (a, b) = (integers(m * k, 1), integers(k * n, 2));
            let (a, b) = (matrix(&a, m, k, trans_a), matrix(&b, k, n, trans_b));
            // Overwritten elements must not be read.
            let c = if accumulate { integers(m * n, 3) } else { vec![bf16::NAN; m * n] };
            let start: Vec<f64> =
                if accumulate { c.iter().map(|c| c.to_f64()).collect() } else { vec![0.0; m * n] };
            let expected = reference(mnk, a, b, &start);
            let rounded: Vec<bf16> =
                expected.iter().map(|x| bf16::narrow_from_f32(*x as f32)).collect();
            for workers in &workers {
                let case = format!(
                    "{mnk:?}, transposed {trans_a} {trans_b}, accumulate {accumulate}, {} threads",
                    workers.threads()
                );
                let mut wide: Vec<f32> = c.iter().map(|c| c.widen_to_f32()).collect();
                workers.install(|| matmul(dots, workers, mnk, [a, b], accumulate, &mut wide));
                assert!(wide.iter().zip(&expected).all(|(x, y)| f64::from(*x) == *y), "f32 {case}");
                let mut narrow = c.clone();
                workers.install(|| matmul(dots, workers, mnk, [a, b], accumulate, &mut narrow));
                assert!(narrow == rounded, "bf16 {case}");
            }
        });
    });
}

#[test]
fn matmuls_are_close_to_f64() {
    with_dots(|dots| {
        for (seed, mnk @ [m, n, k]) in
            [[37, 61, 129], [70, 211, 515], [129, 47, 1111], [24, 96, 3001]].into_iter().enumerate()
        {
            for bits in 0..8 {
                let seed = 10 * seed as u64;
                let (a, b) = (random_values(m * k, seed), random_values(k * n, seed + 1));
                let a = matrix(&a, m, k, bits & 1 != 0);
                let b = matrix(&b, k, n, bits & 2 != 0);
                let start = random_values(m * n, seed + 2);
                let mut c: Vec<f32> = start.iter().map(|c| c.widen_to_f32()).collect();
                let accumulate = bits & 4 != 0;
                let scale = if accumulate { 1.0 } else { 0.0 };
                let start: Vec<f64> = start.iter().map(|c| c.to_f64() * scale).collect();
                let expected = reference(mnk, a, b, &start);
                matmul(dots, &Workers::ONE, mnk, [a, b], accumulate, &mut c);
                // An element has `k` terms of up to 1, of size 1/3 on average.
                let tolerance = 1e-6 * (k as f64).sqrt();
                for (c, expected) in c.iter().zip(&expected) {
                    // Written so that NaN fails.
                    let error = (f64::from(*c) - expected).abs();
                    assert!(error <= tolerance, "{mnk:?} {bits}: {c} instead of {expected}");
                }
            }
        }
    });
}

#[test]
fn bits_do_not_depend_on_threads() {
    let workers = [1, 2, 3, 8].map(|threads| Workers::new(threads).expect("threads start"));
    with_dots(|dots| {
        for mnk @ [m, n, k] in [[600, 64, 130], [50, 800, 2001], [1030, 200, 64]] {
            for (trans_a, trans_b) in [(false, false), (false, true), (true, false), (true, true)] {
                let (a, b) = (random_values(m * k, 1), random_values(k * n, 2));
                let (a, b) = (matrix(&a, m, k, trans_a), matrix(&b, k, n, trans_b));
                let results = workers.each_ref().map(|workers| {
                    let mut c = vec![0f32; m * n];
                    workers.install(|| matmul(dots, workers, mnk, [a, b], false, &mut c));
                    c.into_iter().map(f32::to_bits).collect::<Vec<_>>()
                });
                assert!(results.iter().all(|bits| *bits == results[0]), "{mnk:?}");
            }
        }
    });
}

/// Padding and neighboring rows must not meet an infinity, whose product with zero is NaN.
#[test]
fn nan_and_infinity_stay_in_row_and_column() {
    with_dots(|dots| {
        for mnk @ [m, n, k] in [[20, 37, 5], [20, 37, 6], [9, 65, 33], [17, 20, MAX_DEPTH + 2]] {
            for bits in 0..4 {
                let (trans_a, trans_b) = (bits & 1 != 0, bits & 2 != 0);
                let (mut a, mut b) = (vec![bf16::ONE; m * k], vec![bf16::ONE; k * n]);
                let at = |i: usize, j: usize, rows: usize, columns: usize, transposed: bool| {
                    if transposed { j * rows + i } else { i * columns + j }
                };
                a[at(3, k - 1, m, k, trans_a)] = bf16::INFINITY;
                a[at(5, 0, m, k, trans_a)] = bf16::NAN;
                b[at(k - 1, n - 1, k, n, trans_b)] = bf16::NEG_INFINITY;
                let (a, b) = (matrix(&a, m, k, trans_a), matrix(&b, k, n, trans_b));
                let mut c = vec![0f32; m * n];
                matmul(dots, &Workers::ONE, mnk, [a, b], false, &mut c);
                for (at, c) in c.iter().enumerate() {
                    match (at / n, at % n) {
                        (5, _) => assert!(c.is_nan(), "{mnk:?}"),
                        (_, j) if j == n - 1 => assert_eq!(*c, f32::NEG_INFINITY, "{mnk:?}"),
                        (3, _) => assert_eq!(*c, f32::INFINITY, "{mnk:?}"),
                        _ => assert_eq!(*c, k as f32, "{mnk:?}"),
                    }
                }
            }
        }
    });
}

#[test]
fn subnormal_numbers_are_flushed_to_zero() {
    with_dots(|dots| {
        let subnormal = bf16::from_bits(1);
        let smallest = bf16::MIN_POSITIVE;
        for (x, y, expected) in [
            (subnormal, bf16::MAX, 0.0),
            (smallest, bf16::from_f32(0.5), 0.0),
            (smallest, bf16::ONE, smallest.widen_to_f32()),
        ] {
            let (a, b) = ([x; 8], [y; 8]);
            let operands = [Matrix::rows(&a, 1), Matrix::rows(&b, 8)];
            let mut c = [1f32; 64];
            matmul(dots, &Workers::ONE, [8, 8, 1], operands, false, &mut c);
            assert_eq!(c, [expected; 64], "{x} * {y}");
        }
    });
}

#[test]
fn tasks_partition_the_result() {
    for threads in [1, 2, 3, 16] {
        for (rows, columns) in [(1, 1), (8, 8), (100, 64), (2048, 512), (500, 1408), (33, 8192)] {
            let tasks = TaskGrid::new(rows, columns, threads);
            let mut seen = vec![0u8; rows * columns];
            for task in 0..tasks.task_count() {
                let (rows, lead) = tasks.rows_and_columns(task);
                assert!(!rows.is_empty() && !lead.is_empty() && lead.len() <= MAX_WIDTH);
                for row in rows {
                    seen[row * columns..][lead.clone()].iter_mut().for_each(|seen| *seen += 1);
                }
            }
            assert!(seen.iter().all(|seen| *seen == 1), "{rows} x {columns}, {threads} threads");
            assert!(rows < 2048 || tasks.task_count() >= 2 * threads || threads == 1);
        }
    }
}
