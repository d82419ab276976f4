//! Matmuls whose results are rounded once, after the whole contraction is summed in f32.

use super::Matrix;
use crate::float::{Float, cast_slice};
use crate::scratch::with_scratch;
use crate::workers::{Rows, Workers};

/// Maximum elements of a result that are kept in f32 before they are rounded.
pub(super) const MAX_SUMS: usize = 1 << 21;

/// Minimum rows that are computed at a time, even if they have more elements.
pub(super) const MIN_ROWS: usize = 144;

/// Calls `matmul` for all rows of the left operand `a`, some at a time, and rounds its sums into `c`, or calls it once
/// for a result in f32.
///
/// If `accumulate`, the sums start at `c`, so `matmul` adds to them.
pub(super) fn matmul_rounded<T, C: Float>(
    workers: &Workers,
    [m, n, k]: [usize; 3],
    a: Matrix<T>,
    accumulate: bool,
    c: &mut [C],
    matmul: impl Fn([usize; 3], Matrix<T>, &mut [f32]),
) {
    if let Some(c) = C::in_place_mut(c) {
        return matmul([m, n, k], a, c);
    }
    let rows = (MAX_SUMS / n).max(MIN_ROWS).min(m);
    with_scratch(rows * n, |sums| {
        for (part, c) in c.chunks_mut(rows * n).enumerate() {
            let a = Matrix { data: &a.data[part * rows * a.row..], ..a };
            let sums = &mut sums[..c.len()];
            if accumulate {
                workers.rows(c.len(), 1, Rows(&mut *sums, 1), |range, Rows(sums, _)| {
                    cast_slice(&c[range], sums)
                });
            }
            matmul([c.len() / n, n, k], a, sums);
            workers.rows(c.len(), 1, Rows(c, 1), |range, Rows(c, _)| cast_slice(&sums[range], c));
        }
    });
}
