//! Rotary position embedding (Su et al. 2021), in the half-split layout.

use super::float::Float;
use super::simd::dispatch;
use super::workers::{Rows, Workers};
use crate::backend::RopeShape;

pub(super) fn rope<T: Float>(
    workers: &Workers,
    s: &RopeShape,
    x: &mut [T],
    cos: &[f32],
    sin: &[f32],
    inverse: bool,
) {
    let width = s.heads * s.head_dim;
    let half = s.head_dim / 2;
    assert!(s.head_dim.is_multiple_of(2), "rope pairs the elements of a head");
    assert_eq!(x.len(), s.batch * s.seq * width, "rope operand fits {s:?}");
    assert_eq!([cos.len(), sin.len()], [s.seq * half; 2], "rope tables fit {s:?}");
    let sign = if inverse { -1.0 } else { 1.0 };
    workers.rows(s.batch * s.seq, width, Rows(x, width), |range, x| {
        for (row, x) in range.zip(x.0.chunks_exact_mut(width.max(1))) {
            let at = row % s.seq * half;
            rotate(x, &cos[at..at + half], &sin[at..at + half], sign);
        }
    });
}

dispatch! {
    /// Rotates every head of one position.
    fn rotate<const FMA: bool, T: Float>(x: &mut [T], cos: &[f32], sin: &[f32], sign: f32) {
        let half = cos.len();
        let sin = &sin[..half];
        for head in x.chunks_exact_mut((2 * half).max(1)) {
            let (first, second) = head.split_at_mut(half);
            let second = &mut second[..half];
            for j in 0..half {
                let (a, b, s) = (first[j].widen(), second[j].widen(), sin[j] * sign);
                first[j] = T::narrow(a * cos[j] - b * s);
                second[j] = T::narrow(b * cos[j] + a * s);
            }
        }
    }
}
