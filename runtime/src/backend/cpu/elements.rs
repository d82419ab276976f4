//! Copies, conversions and plain arithmetic on whole operands.

use super::float::{self, Float};
use super::simd::dispatch;
use super::workers::{Rows, Workers};

/// Where runs of elements lie: the first at `start`, each further one `stride` later.
#[derive(Clone, Copy)]
pub(super) struct Runs {
    pub start: usize,
    pub stride: usize,
}

pub(super) fn copy_blocks<T: Copy + Send + Sync>(
    workers: &Workers,
    blocks: usize,
    len: usize,
    src: &[T],
    from: Runs,
    dst: &mut [T],
    to: Runs,
) {
    if blocks == 0 || len == 0 {
        return;
    }
    let end = |runs: Runs| runs.start + (blocks - 1) * runs.stride + len;
    assert!(end(from) <= src.len() && end(to) <= dst.len(), "copied runs lie inside the operands");
    assert!(blocks == 1 || to.stride >= len, "written runs do not overlap");
    let stride = if blocks == 1 { len } else { to.stride };
    let dst = Rows(&mut dst[to.start..end(to)], stride);
    workers.rows(blocks, len, dst, |range, dst| {
        for (block, dst) in range.zip(dst.0.chunks_mut(stride)) {
            dst[..len].copy_from_slice(&src[from.start + block * from.stride..][..len]);
        }
    });
}

pub(super) fn cast<T: Float, U: Float>(workers: &Workers, src: &[T], dst: &mut [U]) {
    assert_eq!(dst.len(), src.len(), "cast: operands of one size");
    workers.rows(dst.len(), 1, Rows(dst, 1), |range, dst| float::cast(&src[range], dst.0));
}

pub(super) fn add_assign<T: Float, U: Float>(workers: &Workers, dst: &mut [T], src: &[U]) {
    assert_eq!(dst.len(), src.len(), "add_assign: operands of one size");
    workers.rows(dst.len(), 1, Rows(dst, 1), |range, dst| add(dst.0, &src[range]));
}

dispatch! {
    fn add<const FMA: bool, T: Float, U: Float>(dst: &mut [T], src: &[U]) {
        for (dst, src) in dst.iter_mut().zip(src) {
            *dst = T::narrow(dst.widen() + src.widen());
        }
    }
}

pub(super) fn lerp<T: Float, U: Float>(workers: &Workers, dst: &mut [T], src: &[U], weight: f32) {
    assert_eq!(dst.len(), src.len(), "lerp: operands of one size");
    workers.rows(dst.len(), 1, Rows(dst, 1), |range, dst| approach(dst.0, &src[range], weight));
}

dispatch! {
    fn approach<const FMA: bool, T: Float, U: Float>(dst: &mut [T], src: &[U], weight: f32) {
        for (dst, src) in dst.iter_mut().zip(src) {
            let old = dst.widen();
            *dst = T::narrow(old + weight * (src.widen() - old));
        }
    }
}

pub(super) fn fill<T: Float>(workers: &Workers, dst: &mut [T], value: f32) {
    let value = T::narrow(value);
    workers.rows(dst.len(), 1, Rows(dst, 1), |_, dst| dst.0.fill(value));
}

pub(super) fn scale<T: Float>(workers: &Workers, dst: &mut [T], factor: f32) {
    workers.rows(dst.len(), 1, Rows(dst, 1), |_, dst| multiply(dst.0, factor));
}

dispatch! {
    fn multiply<const FMA: bool, T: Float>(dst: &mut [T], factor: f32) {
        for dst in dst {
            *dst = T::narrow(dst.widen() * factor);
        }
    }
}
