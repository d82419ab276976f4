//! Rotary position embedding (Su et al. 2021), in the half-split layout.

use super::CpuBackend;
use super::float::{Float, by_float};
use super::simd::dispatch;
use super::workers::{Rows, Workers};
use crate::backend::{RopeArgs, RopeOps, RopeShape};

impl RopeOps for CpuBackend {
    fn rope(&self, shape: &RopeShape, args: RopeArgs) {
        by_float!(args.x.dtype() => T; rope::<T>(&self.workers, shape, args));
    }
}

fn rope<T: Float>(workers: &Workers, s: &RopeShape, args: RopeArgs) {
    let RopeArgs { x, cos, sin, inverse, mut y } = args;
    let (x, cos, sin, y) = (x.typed::<T>(), cos.typed(), sin.typed(), y.typed());
    let width = s.heads * s.head_dim;
    let half = s.head_dim / 2;
    assert!(s.head_dim.is_multiple_of(2), "rope pairs the elements of a head");
    assert_eq!([x.len(), y.len()], [s.batch * s.seq * width; 2], "rope operands fit {s:?}");
    assert_eq!([cos.len(), sin.len()], [s.seq * half; 2], "rope tables fit {s:?}");
    let sign = if inverse { -1.0 } else { 1.0 };
    workers.rows(s.batch * s.seq, width, Rows(y, width), |range, y| {
        for (row, y) in range.zip(y.0.chunks_exact_mut(width.max(1))) {
            let at = row % s.seq * half;
            let x = &x[row * width..][..width];
            rotate(x, &cos[at..at + half], &sin[at..at + half], sign, y);
        }
    });
}

dispatch! {
    /// Rotates every head of one position.
    fn rotate<const FMA: bool, T: Float>(x: &[T], cos: &[f32], sin: &[f32], sign: f32, y: &mut [T]) {
        let half = cos.len();
        let sin = &sin[..half];
        let head_dim = (2 * half).max(1);
        for (x, y) in x.chunks_exact(head_dim).zip(y.chunks_exact_mut(head_dim)) {
            let (x, (first, second)) = (x.split_at(half), y.split_at_mut(half));
            let (x, second) = ((x.0, &x.1[..half]), &mut second[..half]);
            for j in 0..half {
                let (a, b, s) = (x.0[j].widen(), x.1[j].widen(), sin[j] * sign);
                first[j] = T::narrow(a * cos[j] - b * s);
                second[j] = T::narrow(b * cos[j] + a * s);
            }
        }
    }
}
