//! Matmuls of a batch.

use meshwright_backend::{BatchLoop, BatchedGemm, DType, Gemm};

use crate::{Target, values};

/// Rows, columns, and lengths of the sums: one, partial tiles, vectors.
const SIZES: [[usize; 3]; 5] = [[1, 1, 1], [3, 5, 4], [9, 1, 7], [17, 12, 33], [1, 20, 8]];

/// Rows for several threads of a CPU.
const LARGE: [[usize; 3]; 1] = [[40, 33, 65]];

/// Dtypes of operands and of results.
const DTYPES: [(DType, DType); 3] =
    [(DType::F32, DType::F32), (DType::Bf16, DType::Bf16), (DType::Bf16, DType::F32)];

/// Returns the matmuls of a batch, with rows that lie apart and matrices that are parts of rows: the inner loop is over
/// columns of a larger operand, as heads are.
fn in_rows(gemm: Gemm, [outer, inner]: [usize; 2], room: usize) -> BatchedGemm {
    let mut g = BatchedGemm { gemm, lead: [0; 3], batch: [BatchLoop::ONE; 2] };
    (g.batch[0].count, g.batch[1].count) = (outer, inner);
    for (operand, [rows, cols]) in g.stored().into_iter().enumerate() {
        g.lead[operand] = inner * cols + room;
        g.batch[1].strides[operand] = cols;
        g.batch[0].strides[operand] = rows * g.lead[operand];
    }
    g
}

/// Returns the matmuls of a batch whose matrices follow each other; `b` is the same for the inner loop.
fn one_by_one(gemm: Gemm, [outer, inner]: [usize; 2]) -> BatchedGemm {
    let mut g = BatchedGemm { gemm, lead: [0; 3], batch: [BatchLoop::ONE; 2] };
    (g.batch[0].count, g.batch[1].count) = (outer, inner);
    for (operand, [rows, cols]) in g.stored().into_iter().enumerate() {
        g.lead[operand] = cols;
        let is_shared = operand == 1;
        g.batch[1].strides[operand] = if is_shared { 0 } else { rows * cols };
        g.batch[0].strides[operand] = if is_shared { rows * cols } else { inner * rows * cols };
    }
    g
}

/// Computes the sums of products, in f64, onto `c`.
fn reference(g: &BatchedGemm, a: &[f64], b: &[f64], c: &mut [f64]) {
    let Gemm { m, n, k, trans_a, trans_b, accumulate } = g.gemm;
    let [outer, inner] = g.batch;
    for (i, j) in (0..outer.count).flat_map(|i| (0..inner.count).map(move |j| (i, j))) {
        let at = |operand: usize, row: usize, col: usize, is_transposed: bool| {
            let (row, col) = if is_transposed { (col, row) } else { (row, col) };
            let start = i * outer.strides[operand] + j * inner.strides[operand];
            start + row * g.lead[operand] + col
        };
        for (row, col) in (0..m).flat_map(|row| (0..n).map(move |col| (row, col))) {
            let products = (0..k).map(|p| a[at(0, row, p, trans_a)] * b[at(1, p, col, trans_b)]);
            let sum: f64 = products.sum();
            let c = &mut c[at(2, row, col, false)];
            *c = if accumulate { *c + sum } else { sum };
        }
    }
}

/// Matmuls of every layout and dtype follow the formula, and elements between them are not written.
pub fn formula(target: &Target) {
    for [m, n, k] in target.cases(&SIZES, &LARGE) {
        for bits in 0..8 {
            let [trans_a, trans_b, accumulate] = [1, 2, 4].map(|bit| bits & bit != 0);
            let gemm = Gemm { m, n, k, trans_a, trans_b, accumulate };
            check(target, &in_rows(gemm, [1, 1], 3));
            check(target, &in_rows(gemm, [2, 3], 3));
            check(target, &in_rows(gemm, [4, 1], 0));
            check(target, &one_by_one(gemm, [1, 5]));
            check(target, &one_by_one(gemm, [2, 3]));
        }
    }
}

fn check(target: &Target, g: &BatchedGemm) {
    let lens = g.ends();
    for (dtype, result) in DTYPES {
        let [a, b] =
            [0, 1].map(|operand| target.floats(dtype, &values(lens[operand], operand as u64 + 1)));
        let mut c = target.floats(result, &values(lens[2], 3));
        let mut expected = c.wide();
        reference(g, &a.wide(), &b.wide(), &mut expected);
        target.backend().batched_gemm(g, a.view(), b.view(), c.view_mut());
        // Dot products of bf16 pairs add up in another order.
        let tolerance = if dtype == DType::Bf16 { 2e-6 } else { 1e-6 };
        target.check(&format!("{g:?} of {dtype}"), &c, &expected, tolerance);
    }
}

/// Each multiply-add counts as two operations.
pub fn counted_operations(target: &Target) {
    let gemm = Gemm { m: 3, n: 5, k: 7, trans_a: false, trans_b: false, accumulate: false };
    let g = in_rows(gemm, [2, 3], 1);
    let before = target.backend().flops();
    let lens = g.ends();
    let [a, b] = [0, 1].map(|operand| target.floats(DType::F32, &values(lens[operand], 1)));
    let mut c = target.floats(DType::F32, &values(lens[2], 2));
    target.backend().batched_gemm(&g, a.view(), b.view(), c.view_mut());
    assert_eq!(target.backend().flops() - before, 2 * 6 * 3 * 5 * 7);
}
