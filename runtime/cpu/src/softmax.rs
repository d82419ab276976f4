//! Softmax over rows.

use super::CpuBackend;
use super::float::{Float, by_float, store_rounded, workplace, workplace_len};
use super::math::{exp, lane_max, lane_sum, larger};
use super::scratch::with_scratch;
use super::simd::dispatch;
use super::workers::{Rows, Workers};
use meshwright_backend::{SoftmaxOps, View, ViewMut};

impl SoftmaxOps for CpuBackend {
    fn softmax(&self, cols: usize, x: View, mut y: ViewMut) {
        by_float!(x.dtype() => T; softmax::<T>(&self.workers, cols, x.typed(), y.typed()));
    }

    fn softmax_backward(&self, cols: usize, y: View, dy: View, mut dx: ViewMut) {
        by_float!(y.dtype() => T;
            softmax_backward::<T>(&self.workers, cols, y.typed(), dy.typed(), dx.typed()));
    }
}

fn softmax<T: Float>(workers: &Workers, cols: usize, x: &[T], y: &mut [T]) {
    assert_eq!(x.len(), y.len(), "softmax: operands of one size");
    let rows = row_count(x.len(), cols);
    workers.rows(rows, cols, Rows(y, cols), |range, y| {
        let x = &x[range.start * cols..range.end * cols];
        with_scratch(workplace_len::<T>(cols), |scratch| softmax_rows(cols, x, y.0, scratch));
    });
}

/// Returns the number of rows of `cols` elements.
pub(super) fn row_count(len: usize, cols: usize) -> usize {
    assert!(cols > 0 && len.is_multiple_of(cols), "{len} elements are whole rows of {cols}");
    len / cols
}

dispatch! {
    fn softmax_rows<const FMA: bool, T: Float>(
        cols: usize, x: &[T], y: &mut [T], scratch: &mut [f32],
    ) {
        for (x, y) in x.chunks_exact(cols).zip(y.chunks_exact_mut(cols)) {
            let max = lane_max(x, larger);
            let weights = workplace(&mut *y, &mut *scratch);
            for i in 0..cols {
                weights[i] = exp::<FMA>(x[i].widen_to_f32() - max);
            }
            let inv = 1.0 / lane_sum([&*weights], |[weight]| weight);
            for weight in weights {
                *weight *= inv;
            }
            store_rounded(scratch, y);
        }
    }
}

fn softmax_backward<T: Float>(workers: &Workers, cols: usize, y: &[T], dy: &[T], dx: &mut [T]) {
    assert_eq!([y.len(), dy.len()], [dx.len(); 2], "softmax: operands of one size");
    workers.rows(row_count(y.len(), cols), cols, Rows(dx, cols), |range, dx| {
        let range = range.start * cols..range.end * cols;
        softmax_rows_backward(cols, &y[range.clone()], &dy[range], dx.0);
    });
}

dispatch! {
    fn softmax_rows_backward<const FMA: bool, T: Float>(cols: usize, y: &[T], dy: &[T], dx: &mut [T]) {
        let rows = y.chunks_exact(cols).zip(dy.chunks_exact(cols));
        for ((y, dy), dx) in rows.zip(dx.chunks_exact_mut(cols)) {
            let dot = lane_sum([y, dy], |[y, dy]| y * dy);
            for i in 0..cols {
                dx[i] = T::narrow_from_f32(y[i].widen_to_f32() * (dy[i].widen_to_f32() - dot));
            }
        }
    }
}
