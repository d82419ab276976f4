//! Matmuls of a batch.

use super::{MIN_SIDE, Matrix, matmul, skinny};
use crate::float::Float;
use crate::strided_copy::copy_strided;
use crate::workers::{Rows, Workers};
use meshwright_backend::{BatchedGemm, CopyDim, Gemm, StridedCopy};

/// Multiplies the matrices of the batch, each on one thread if there are several for each of them.
pub(super) fn batched_gemm<T: Float, C: Float>(
    workers: &Workers,
    g: &BatchedGemm,
    a: &[T],
    b: &[T],
    c: &mut [C],
) {
    g.check([a.len(), b.len(), c.len()]);
    let Gemm { m, n, accumulate, .. } = g.gemm;
    let (count, size) = (g.count(), m * n);
    if is_contiguous(g) {
        return multiply(workers, g, a, b, &mut c[..count * size]);
    }
    // Results that are parts of rows: the matmuls write whole rows.
    let scattered = scattered(g);
    let mut results = vec![C::ZERO; count * size];
    if accumulate {
        copy_strided(workers, &scattered.reversed(), c, &mut results);
    }
    multiply(workers, g, a, b, &mut results);
    copy_strided(workers, &scattered, &results, c);
}

/// Returns true if the results follow each other.
fn is_contiguous(g: &BatchedGemm) -> bool {
    let Gemm { m, n, .. } = g.gemm;
    let [outer, inner] = g.batch;
    (m == 1 || g.lead[2] == n)
        && (inner.count == 1 || inner.strides[2] == m * n)
        && (outer.count == 1 || outer.strides[2] == inner.count * m * n)
}

/// Returns the copy of results that follow each other to their places.
fn scattered(g: &BatchedGemm) -> StridedCopy {
    let Gemm { m, n, .. } = g.gemm;
    let [outer, inner] = g.batch;
    StridedCopy::new([
        CopyDim { size: outer.count, src: inner.count * m * n, dst: outer.strides[2] },
        CopyDim { size: inner.count, src: m * n, dst: inner.strides[2] },
        CopyDim { size: m, src: n, dst: g.lead[2] },
        CopyDim { size: n, src: 1, dst: 1 },
    ])
}

/// Multiplies into results that follow each other.
fn multiply<T: Float, C: Float>(workers: &Workers, g: &BatchedGemm, a: &[T], b: &[T], c: &mut [C]) {
    let Gemm { m, n, .. } = g.gemm;
    if g.count() < workers.threads() {
        for (index, c) in c.chunks_exact_mut(m * n).enumerate() {
            workers.install(|| multiply_one(workers, g, index, a, b, c));
        }
        return;
    }
    let share = g.count().div_ceil(workers.threads());
    workers.chunks(g.count(), share, Rows(c, m * n), |range, Rows(c, _)| {
        for (index, c) in range.zip(c.chunks_exact_mut(m * n)) {
            multiply_one(&Workers::ONE, g, index, a, b, c);
        }
    });
}

/// Multiplies the matrices of element `index` of the batch.
fn multiply_one<T: Float, C: Float>(
    workers: &Workers,
    g: &BatchedGemm,
    index: usize,
    a: &[T],
    b: &[T],
    c: &mut [C],
) {
    let Gemm { m, n, k, trans_a, trans_b, accumulate } = g.gemm;
    let [outer, inner] = g.batch;
    let (outer_index, inner_index) = (index / inner.count, index % inner.count);
    let start = |operand: usize| {
        outer_index * outer.strides[operand] + inner_index * inner.strides[operand]
    };
    let matrix = |operand: usize, data, is_transposed: bool| {
        let lead = g.lead[operand];
        if is_transposed { Matrix::transposed(data, lead) } else { Matrix::rows(data, lead) }
    };
    let spans = g.spans();
    let a = matrix(0, &a[start(0)..][..spans[0]], trans_a);
    let b = matrix(1, &b[start(1)..][..spans[1]], trans_b);
    let matmul = if m.min(n) < MIN_SIDE { skinny::matmul } else { matmul };
    matmul(workers, [m, n, k], a, b, accumulate, c);
}
