//! Reductions over a dim and over whole operands.

use super::CpuBackend;
use super::float::{Float, by_float, store_rounded, workplace, workplace_len};
use super::math::lane_sum;
use super::scratch::with_scratch;
use super::simd::dispatch;
use super::workers::{Rows, Workers};
use meshwright_backend::{MiddleDim, ReductionOps, View, ViewMut};

/// Elements per partial sum of a whole operand.
const CHUNK: usize = 1 << 15;

/// Columns that are summed together, so that the sums stay in the L1 cache.
const COLUMNS: usize = 2048;

impl ReductionOps for CpuBackend {
    fn sum_dim(&self, dim: MiddleDim, x: View, mut y: ViewMut, scale: f32) {
        by_float!(x.dtype() => T, y.dtype() => U;
            sum_dim::<T, U>(&self.workers, dim, x.typed(), y.typed(), scale));
    }

    fn broadcast_dim(&self, dim: MiddleDim, dy: View, mut dx: ViewMut, scale: f32) {
        by_float!(dx.dtype() => T, dy.dtype() => U;
            broadcast_dim::<T, U>(&self.workers, dim, dy.typed(), dx.typed(), scale));
    }

    fn sum_squares(&self, x: View) -> f64 {
        by_float!(x.dtype() => T; sum_squares::<T>(&self.workers, x.typed()))
    }
}

fn sum_dim<T: Float, U: Float>(
    workers: &Workers,
    MiddleDim { outer, len: n, inner }: MiddleDim,
    x: &[T],
    y: &mut [U],
    scale: f32,
) {
    assert_eq!((x.len(), y.len()), (outer * n * inner, outer * inner), "sum_dim: sizes");
    workers.rows(outer * inner, n, Rows(y, 1), |range, y| {
        if inner == 1 {
            sum_rows(&x[range.start * n..range.end * n], n, y.0, scale);
            return;
        }
        with_scratch(workplace_len::<U>(COLUMNS), |scratch| {
            let mut at = range.start;
            let mut rest = y.0;
            while !rest.is_empty() {
                let (block, column) = (at / inner, at % inner);
                let columns = rest.len().min(inner - column).min(COLUMNS);
                let (head, tail) = rest.split_at_mut(columns);
                let x = &x[block * n * inner..][..n * inner];
                sum_columns(x, inner, column, head, scale, scratch);
                at += columns;
                rest = tail;
            }
        });
    });
}

dispatch! {
    fn sum_rows<const FMA: bool, T: Float, U: Float>(x: &[T], n: usize, y: &mut [U], scale: f32) {
        for (row, y) in y.iter_mut().enumerate() {
            let x = &x[row * n..][..n];
            *y = U::narrow_from_f32(scale * lane_sum([x], |[x]| x));
        }
    }
}

dispatch! {
    fn sum_columns<const FMA: bool, T: Float, U: Float>(
        x: &[T], inner: usize, column: usize, y: &mut [U], scale: f32, scratch: &mut [f32],
    ) {
        let sums = workplace(&mut *y, &mut *scratch);
        sums.fill(0.0);
        for row in x.chunks_exact(inner) {
            for (sum, x) in sums.iter_mut().zip(&row[column..]) {
                *sum += x.widen_to_f32();
            }
        }
        for sum in sums {
            *sum *= scale;
        }
        store_rounded(scratch, y);
    }
}

fn broadcast_dim<T: Float, U: Float>(
    workers: &Workers,
    MiddleDim { outer, len: n, inner }: MiddleDim,
    dy: &[U],
    dx: &mut [T],
    scale: f32,
) {
    assert_eq!((dx.len(), dy.len()), (outer * n * inner, outer * inner), "broadcast_dim: sizes");
    if dx.is_empty() {
        return;
    }
    workers.rows(outer * n, inner, Rows(dx, inner), |range, dx| {
        for (row, dx) in range.zip(dx.0.chunks_exact_mut(inner)) {
            scale_row(&dy[row / n * inner..][..inner], dx, scale);
        }
    });
}

dispatch! {
    fn scale_row<const FMA: bool, T: Float, U: Float>(dy: &[U], dx: &mut [T], scale: f32) {
        for (dx, dy) in dx.iter_mut().zip(dy) {
            *dx = T::narrow_from_f32(scale * dy.widen_to_f32());
        }
    }
}

fn sum_squares<T: Float>(workers: &Workers, x: &[T]) -> f64 {
    let mut partial = vec![0f64; x.len().div_ceil(CHUNK)];
    workers.rows(partial.len(), CHUNK, Rows(&mut partial, 1), |range, partial| {
        for (chunk, sum) in range.zip(partial.0) {
            *sum = chunk_squares(&x[chunk * CHUNK..x.len().min((chunk + 1) * CHUNK)]);
        }
    });
    partial.iter().sum()
}

dispatch! {
    fn chunk_squares<const FMA: bool, T: Float>(x: &[T]) -> f64 {
        const LANES: usize = 32;
        let mut lanes = [0f64; LANES];
        let chunks = x.chunks_exact(LANES);
        let rest = chunks.remainder();
        for chunk in chunks {
            for lane in 0..LANES {
                let x = f64::from(chunk[lane].widen_to_f32());
                lanes[lane] += x * x;
            }
        }
        let rest: f64 = rest.iter().map(|x| f64::from(x.widen_to_f32()).powi(2)).sum();
        lanes.iter().sum::<f64>() + rest
    }
}
