//! Elements by their index along a dim, indices of the largest elements, and running sums.

use std::cmp::Ordering;

use super::CpuBackend;
use super::float::{Float, by_float};
use super::workers::{Rows, Workers};
use meshwright_backend::{IndexOps, IndexedDim, MiddleDim, View, ViewMut};

impl IndexOps for CpuBackend {
    fn take_elements(&self, shape: &IndexedDim, indices: View, x: View, mut out: ViewMut) {
        by_float!(x.dtype() => T;
            take_elements::<T>(&self.workers, shape, indices.typed(), x.typed(), out.typed()));
    }

    fn add_elements(&self, shape: &IndexedDim, indices: View, x: View, mut out: ViewMut) {
        by_float!(x.dtype() => T;
            add_elements::<T>(&self.workers, shape, indices.typed(), x.typed(), out.typed()));
    }

    fn largest(&self, dim: MiddleDim, k: usize, x: View, mut positions: ViewMut) {
        by_float!(x.dtype() => T; largest::<T>(&self.workers, dim, k, x.typed(), positions.typed()));
    }

    fn running_sum(&self, dim: MiddleDim, from_end: bool, x: View, mut y: ViewMut) {
        by_float!(x.dtype() => T;
            running_sum::<T>(&self.workers, dim, from_end, x.typed(), y.typed()));
    }
}

fn take_elements<T: Float>(
    workers: &Workers,
    shape: &IndexedDim,
    indices: &[u32],
    x: &[T],
    out: &mut [T],
) {
    shape.check(indices.len(), x.len(), out.len());
    let &IndexedDim { outer, len, inner, count, is_elementwise, .. } = shape;
    workers.rows(outer * count, inner, Rows(out, inner), |range, Rows(out, _)| {
        if inner == 0 {
            return;
        }
        for (row, out) in range.zip(out.chunks_exact_mut(inner)) {
            let x = &x[row / count * len * inner..][..len * inner];
            if is_elementwise {
                let indices = &indices[row * inner..];
                for (i, out) in out.iter_mut().enumerate() {
                    *out = shape.place(indices[i]).map_or(T::ZERO, |place| x[place * inner + i]);
                }
                continue;
            }
            match shape.place(indices[row]) {
                Some(place) => out.copy_from_slice(&x[place * inner..][..inner]),
                None => out.fill(T::ZERO),
            }
        }
    });
}

fn add_elements<T: Float>(
    workers: &Workers,
    shape: &IndexedDim,
    indices: &[u32],
    x: &[T],
    out: &mut [f32],
) {
    shape.check(indices.len(), out.len(), x.len());
    let &IndexedDim { outer, len, inner, count, is_elementwise, .. } = shape;
    workers.rows(outer, count * inner, Rows(out, len * inner), |range, Rows(out, _)| {
        if len * inner == 0 {
            return;
        }
        for (block, out) in range.zip(out.chunks_exact_mut(len * inner)) {
            for row in block * count..(block + 1) * count {
                let x = &x[row * inner..][..inner];
                let index = |i: usize| indices[if is_elementwise { row * inner + i } else { row }];
                for (i, x) in x.iter().enumerate() {
                    if let Some(place) = shape.place(index(i)) {
                        out[place * inner + i] += x.widen_to_f32();
                    }
                }
            }
        }
    });
}

/// Orders elements from the largest one on.
fn by_size(x: &[(f32, u32)]) -> impl Fn(&u32, &u32) -> Ordering + '_ {
    |a, b| {
        let [(x, a), (y, b)] = [a, b].map(|at| x[*at as usize]);
        let by_value = match (x.is_nan(), y.is_nan()) {
            (false, false) => y.partial_cmp(&x).unwrap_or(Ordering::Equal),
            (x, y) => y.cmp(&x),
        };
        by_value.then(a.cmp(&b))
    }
}

fn largest<T: Float>(workers: &Workers, dim: MiddleDim, k: usize, x: &[T], positions: &mut [u32]) {
    let MiddleDim { outer, len, inner } = dim;
    assert_eq!(
        [x.len(), positions.len()],
        [outer * len * inner, outer * k * inner],
        "largest: sizes"
    );
    assert!(k <= len, "a dim has no more largest elements than elements");
    workers.rows(outer, len * inner, Rows(positions, k * inner), |range, Rows(positions, _)| {
        if k * inner == 0 {
            return;
        }
        for (block, positions) in range.zip(positions.chunks_exact_mut(k * inner)) {
            let x = &x[block * len * inner..][..len * inner];
            for column in 0..inner {
                let value = |at: usize| (x[at * inner + column].widen_to_f32(), at as u32);
                let values: Vec<(f32, u32)> = (0..len).map(value).collect();
                let mut order: Vec<u32> = (0..len as u32).collect();
                order.sort_unstable_by(by_size(&values));
                for (at, position) in order[..k].iter().enumerate() {
                    positions[at * inner + column] = *position;
                }
            }
        }
    });
}

fn running_sum<T: Float>(workers: &Workers, dim: MiddleDim, from_end: bool, x: &[T], y: &mut [T]) {
    let MiddleDim { outer, len, inner } = dim;
    assert!(x.len() == outer * len * inner && y.len() == x.len(), "running_sum: sizes");
    workers.rows(outer, len * inner, Rows(y, len * inner), |range, Rows(y, _)| {
        if len * inner == 0 {
            return;
        }
        let mut sums = vec![0.0f32; inner];
        for (block, y) in range.zip(y.chunks_exact_mut(len * inner)) {
            sums.fill(0.0);
            let x = &x[block * len * inner..];
            for at in 0..len {
                let row = if from_end { len - 1 - at } else { at } * inner;
                for ((sum, x), y) in sums.iter_mut().zip(&x[row..]).zip(&mut y[row..]) {
                    *sum += x.widen_to_f32();
                    *y = T::narrow_from_f32(*sum);
                }
            }
        }
    });
}
