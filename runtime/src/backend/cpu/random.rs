//! Counter-based randomness: an element's value is a function of a key and its global index.

use super::CpuBackend;
use super::float::{Float, by_float};
use super::math;
use super::simd::dispatch;
use super::workers::{Rows, Workers};
use crate::backend::{BlockIndex, Dropout, RandomOps, ViewMut};

/// Elements filled per task.
const CHUNK: usize = 1 << 16;

impl RandomOps for CpuBackend {
    fn normal(&self, key: u64, std: f32, index: &BlockIndex, mut out: ViewMut) {
        by_float!(out.dtype() => T; normal::<T>(&self.workers, key, std, index, out.typed()));
    }
}

/// 64 random bits for element `index` of the stream `key`: Steele, Lea and Flood's SplitMix64 with the key mixed in
/// at two places, so that streams with neighboring keys do not overlap.
#[inline(always)]
fn bits(key: u64, index: u64) -> u64 {
    let z = index.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(key);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ key.rotate_left(32);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Factors of the elements `start..start + mask.len()` of a block: 0, or `1 / (1 - rate)`.
pub(super) fn dropout_mask(dropout: &Dropout, start: usize, mask: &mut [f32]) {
    // In units of 2^-32; beyond every possible draw at rate 1.
    let threshold = (f64::from(dropout.rate) * 4_294_967_296.0) as u64;
    let keep = if dropout.rate < 1.0 { 1.0 / (1.0 - dropout.rate) } else { 0.0 };
    runs(&dropout.index, start, mask, |index, run| {
        mask_run(dropout.key, index, threshold, keep, run);
    });
}

dispatch! {
    fn mask_run<const FMA: bool>(key: u64, index: u64, threshold: u64, keep: f32, run: &mut [f32]) {
        for (i, mask) in run.iter_mut().enumerate() {
            let draw = bits(key, index.wrapping_add(i as u64)) >> 32;
            *mask = if draw < threshold { 0.0 } else { keep };
        }
    }
}

fn normal<T: Float>(workers: &Workers, key: u64, std: f32, index: &BlockIndex, out: &mut [T]) {
    assert_eq!(index.len(), out.len(), "the block index fits the operand");
    workers.chunks(out.len().div_ceil(CHUNK), 1, Rows(out, CHUNK), |range, out| {
        runs(index, range.start * CHUNK, out.0, |index, run| normal_run(key, std, index, run));
    });
}

dispatch! {
    // Box and Muller 1958, one deviate per 64 bits. No fused multiply-add: ranks on different CPUs agree.
    fn normal_run<const FMA: bool, T: Float>(key: u64, std: f32, index: u64, run: &mut [T]) {
        for (i, out) in run.iter_mut().enumerate() {
            let bits = bits(key, index.wrapping_add(i as u64));
            // Both within (0, 1]: the logarithm is finite.
            let radius = ((bits >> 32) as u32 as f32 + 0.5) * (1.0 / 4_294_967_296.0);
            let turn = bits as u32 as i32 as f32 * (1.0 / 4_294_967_296.0);
            let deviate = (-2.0 * math::log(radius)).max(0.0).sqrt() * math::cos_turns(turn);
            *out = T::narrow(std * deviate);
        }
    }
}

/// Calls `f(global index, elements)` for each contiguous run of the global tensor among the elements
/// `start..start + out.len()` of a block.
fn runs<T>(index: &BlockIndex, start: usize, out: &mut [T], mut f: impl FnMut(u64, &mut [T])) {
    // Trailing dims that are not split are merged into the run of the dim before them.
    let mut run = 1;
    for (local, global) in index.local.iter().zip(&index.global).rev() {
        run *= local;
        if local != global {
            break;
        }
    }
    let mut position = start;
    let mut rest = out;
    while !rest.is_empty() {
        let len = rest.len().min(run - position % run);
        let (head, tail) = rest.split_at_mut(len);
        f(index.global_index(position), head);
        position += len;
        rest = tail;
    }
}
