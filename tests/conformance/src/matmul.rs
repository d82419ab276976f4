//! Matrix multiplication.

use meshwright_backend::{DType, Gemm};

use crate::{Operand, Target, values};

/// Rows, columns, and lengths of the sums: none, one, partial tiles, and vectors as operands or as results.
const SIZES: [[usize; 3]; 11] = [
    [0, 9, 4],
    [9, 0, 4],
    [8, 8, 0],
    [1, 1, 1],
    [1, 33, 7],
    [2, 3, 64],
    [65, 1, 40],
    [17, 30, 129],
    [33, 40, 32],
    [7, 60, 13],
    [60, 5, 70],
];

/// Several blocks, and rows for several threads of a CPU.
const LARGE: [[usize; 3]; 7] = [
    [130, 70, 65],
    [7, 300, 130],
    [600, 5, 70],
    [33, 40, 1000],
    [200, 300, 500],
    [3, 2000, 301],
    [2000, 1, 301],
];

/// Dtypes of operands and of results.
const DTYPES: [(DType, DType); 3] =
    [(DType::F32, DType::F32), (DType::Bf16, DType::Bf16), (DType::Bf16, DType::F32)];

/// Returns every layout, overwriting the result and adding to it.
fn layouts([m, n, k]: [usize; 3]) -> impl Iterator<Item = Gemm> {
    (0..8).map(move |bits| {
        let [trans_a, trans_b, accumulate] = [1, 2, 4].map(|bit| bits & bit != 0);
        Gemm { m, n, k, trans_a, trans_b, accumulate }
    })
}

/// Computes the sum of products, onto `c`.
fn reference(g: &Gemm, a: &[f64], b: &[f64], mut c: Vec<f64>) -> Vec<f64> {
    let &Gemm { m, n, k, trans_a, trans_b, .. } = g;
    // Rows of the right operand, so that the innermost loop is over neighbors.
    let b: Vec<f64> =
        if trans_b { (0..k * n).map(|i| b[i % n * k + i / n]).collect() } else { b.to_vec() };
    for (i, row) in c.chunks_exact_mut(n.max(1)).enumerate() {
        for p in 0..k {
            let a = if trans_a { a[p * m + i] } else { a[i * k + p] };
            row.iter_mut().zip(&b[p * n..]).for_each(|(c, b)| *c += a * b);
        }
    }
    c
}

fn operands(target: &Target, g: &Gemm, dtype: DType) -> [Operand; 2] {
    [(g.m * g.k, 1), (g.k * g.n, 2)].map(|(len, seed)| target.floats(dtype, &values(len, seed)))
}

/// Matmuls of every layout and dtype follow the formula; matmuls of sizes that change have the same results.
pub fn formula(target: &Target) {
    for g in target.cases(&SIZES, &LARGE).into_iter().flat_map(layouts) {
        for (dtype, result) in DTYPES {
            let [a, b] = operands(target, &g, dtype);
            let before = values(g.m * g.n, 3);
            // Overwritten elements must not be read.
            let result = || {
                if g.accumulate {
                    target.floats(result, &before)
                } else {
                    target.blank(result, before.len())
                }
            };
            let [mut c, mut ragged] = [result(), result()];
            let onto = if g.accumulate { c.wide() } else { vec![0.0; before.len()] };
            target.backend().gemm(&g, a.view(), b.view(), c.view_mut());
            target.backend().grouped_gemm(&g, a.view(), b.view(), ragged.view_mut());
            let expected = reference(&g, &a.wide(), &b.wide(), onto);
            // Dot products of bf16 pairs add up in another order.
            let tolerance = if dtype == DType::Bf16 { 2e-6 } else { 1e-6 };
            target.check(&format!("{g:?} of {dtype}"), &c, &expected, tolerance);
            target.check(&format!("ragged {g:?} of {dtype}"), &ragged, &expected, tolerance);
        }
    }
}

/// Sums are kept in f32: in bf16, a sum of ones would not grow beyond 256.
pub fn sums(target: &Target) {
    let (m, n, k) = (3, 40, 5000);
    let g = Gemm { m, n, k, trans_a: true, trans_b: false, accumulate: true };
    let [a, b] = [m, n].map(|rows| target.floats(DType::Bf16, &vec![1.0; rows * k]));
    let mut c = target.put(&vec![1f32; m * n]);
    target.backend().gemm(&g, a.view(), b.view(), c.view_mut());
    target.check_exactly("sums of ones", &c, &vec![5001.0; m * n]);
}

/// NaN and infinity reach their row, and no other.
pub fn special_values(target: &Target) {
    let (m, n, k) = (40, 50, 60);
    let g = Gemm { m, n, k, trans_a: false, trans_b: false, accumulate: false };
    for (dtype, result) in DTYPES {
        let mut a = vec![1.0; m * k];
        (a[7 * k + 3], a[9 * k + 59]) = (f32::NAN, f32::INFINITY);
        let (a, b) = (target.floats(dtype, &a), target.floats(dtype, &vec![1.0; k * n]));
        let mut c = target.blank(result, m * n);
        target.backend().gemm(&g, a.view(), b.view(), c.view_mut());
        let row = |i: usize| match i / n {
            7 => f32::NAN,
            9 => f32::INFINITY,
            _ => 60.0,
        };
        target.check_exactly(&format!("of {dtype}"), &c, &(0..m * n).map(row).collect::<Vec<_>>());
    }
}

/// Each multiply-add counts as two operations.
pub fn counted_operations(target: &Target) {
    let g = Gemm { m: 3, n: 5, k: 7, trans_a: false, trans_b: false, accumulate: false };
    let before = target.backend().flops();
    let [a, b] = operands(target, &g, DType::F32);
    let mut c = target.blank(DType::F32, 3 * 5);
    target.backend().gemm(&g, a.view(), b.view(), c.view_mut());
    assert_eq!(target.backend().flops() - before, 2 * 3 * 5 * 7);
}
