//! Rotary position embedding (Su et al. 2021).

use super::CpuBackend;
use super::float::{Float, by_float};
use super::simd::dispatch;
use super::workers::{Rows, Workers};
use meshwright_backend::ops::rope::RopeArgs;
use meshwright_backend::{RopeLayout, RopeOps, RopeShape};

impl RopeOps for CpuBackend {
    fn rope(&self, shape: &RopeShape, args: RopeArgs) {
        by_float!(args.x.dtype() => T; rope::<T>(&self.workers, shape, args));
    }
}

fn rope<T: Float>(workers: &Workers, s: &RopeShape, args: RopeArgs) {
    let RopeArgs { x, cos, sin, inverse, mut y } = args;
    let (x, cos, sin, y) = (x.typed::<T>(), cos.typed(), sin.typed(), y.typed());
    s.check_pairs();
    let width = s.heads * s.head_dim;
    let half = s.rotary_dim / 2;
    assert_eq!([x.len(), y.len()], [s.elements(); 2], "rope operands fit {s:?}");
    assert_eq!([cos.len(), sin.len()], [s.seq * half; 2], "rope tables fit {s:?}");
    let sign = if inverse { -1.0 } else { 1.0 };
    let rotate = match s.layout {
        RopeLayout::HalfSplit => rotate_halves,
        RopeLayout::Interleaved => rotate_neighbors,
    };
    workers.rows(s.batch * s.seq, width, Rows(y, width), |range, y| {
        for (row, y) in range.zip(y.0.chunks_exact_mut(width.max(1))) {
            let at = row % s.seq * half;
            let x = &x[row * width..][..width];
            rotate(x, &cos[at..at + half], &sin[at..at + half], sign, s.head_dim, y);
        }
    });
}

dispatch! {
    /// Rotates every head of one position, in the half-split layout.
    fn rotate_halves<const FMA: bool, T: Float>(
        x: &[T], cos: &[f32], sin: &[f32], sign: f32, head_dim: usize, y: &mut [T],
    ) {
        let half = cos.len();
        let sin = &sin[..half];
        for (x, y) in x.chunks_exact(head_dim.max(1)).zip(y.chunks_exact_mut(head_dim.max(1))) {
            y[2 * half..].copy_from_slice(&x[2 * half..]);
            let (x, (first, second)) = (x.split_at(half), y.split_at_mut(half));
            let (x, second) = ((x.0, &x.1[..half]), &mut second[..half]);
            for j in 0..half {
                let (a, b, s) = (x.0[j].widen_to_f32(), x.1[j].widen_to_f32(), sin[j] * sign);
                first[j] = T::narrow_from_f32(a * cos[j] - b * s);
                second[j] = T::narrow_from_f32(b * cos[j] + a * s);
            }
        }
    }
}

dispatch! {
    /// Rotates every head of one position, in the interleaved layout.
    fn rotate_neighbors<const FMA: bool, T: Float>(
        x: &[T], cos: &[f32], sin: &[f32], sign: f32, head_dim: usize, y: &mut [T],
    ) {
        let half = cos.len();
        let sin = &sin[..half];
        for (x, y) in x.chunks_exact(head_dim.max(1)).zip(y.chunks_exact_mut(head_dim.max(1))) {
            y[2 * half..].copy_from_slice(&x[2 * half..]);
            let (pairs, _) = x.as_chunks::<2>();
            let (rotated, _) = y.as_chunks_mut::<2>();
            for j in 0..half {
                let (a, b, s) = (pairs[j][0].widen_to_f32(), pairs[j][1].widen_to_f32(), sin[j] * sign);
                rotated[j] = [T::narrow_from_f32(a * cos[j] - b * s), T::narrow_from_f32(b * cos[j] + a * s)];
            }
        }
    }
}
