//! Counter-based random numbers: an element's value is a function of a key and its global index.
//!
//! Philox draws four words for four consecutive elements: element `i` has word `i % 4` of counter `i / 4`.

use super::CpuBackend;
use super::float::{Float, by_float};
use super::math;
use super::simd::dispatch;
use super::workers::{Rows, Workers};
use crate::philox::philox4x32;
use meshwright_backend::{BlockIndex, DropoutMask, RandomOps, ViewMut};

/// Elements filled per task.
const CHUNK: usize = 1 << 16;

/// Counters that are computed together.
const LANES: usize = 16;

/// Elements that are computed together.
const GROUP: usize = 4 * LANES;

/// A word of each element of a group: `words[i % 4][i / 4]` belongs to element `i`.
type Words<T> = [[T; LANES]; 4];

impl RandomOps for CpuBackend {
    fn fill_normal(&self, key: u64, std: f32, index: &BlockIndex, mut out: ViewMut) {
        by_float!(out.dtype() => T; fill_block::<T>(&self.workers, index, out.typed(), |index, run| {
            normal_run(key, std, index, run)
        }));
    }

    fn fill_uniform(&self, key: u64, bound: f32, index: &BlockIndex, mut out: ViewMut) {
        by_float!(out.dtype() => T; fill_block::<T>(&self.workers, index, out.typed(), |index, run| {
            uniform_run(key, bound, index, run)
        }));
    }
}

/// Writes the dropout factors of the elements `start..start + mask.len()` of a block: 0, or `1 / (1 - rate)`.
pub(super) fn dropout_mask(dropout: &DropoutMask, start: usize, mask: &mut [f32]) {
    // In units of 2^-32; beyond every possible draw at rate 1.
    let threshold = (f64::from(dropout.rate) * 4_294_967_296.0) as u64;
    let keep = if dropout.rate < 1.0 { 1.0 / (1.0 - dropout.rate) } else { 0.0 };
    for_each_run(&dropout.index, start, mask, |index, run| {
        mask_run(dropout.key, index, threshold, keep, run);
    });
}

dispatch! {
    fn mask_run<const FMA: bool>(key: u64, index: u64, threshold: u64, keep: f32, run: &mut [f32]) {
        fill_run(key, index, run, |draws| {
            // Loops: maps of arrays are not always inlined, and then not vectorized.
            let mut factors = [[0.0; LANES]; 4];
            for (factors, draws) in factors.iter_mut().zip(draws) {
                for (factor, draw) in factors.iter_mut().zip(draws) {
                    *factor = if u64::from(*draw) < threshold { 0.0 } else { keep };
                }
            }
            factors
        });
    }
}

/// Fills a block by `fill`, which gets contiguous runs of the global tensor with the index of their first element.
fn fill_block<T: Float>(
    workers: &Workers,
    index: &BlockIndex,
    out: &mut [T],
    fill: impl Fn(u64, &mut [T]) + Sync,
) {
    assert_eq!(index.len(), out.len(), "the block index fits the operand");
    workers.chunks(out.len().div_ceil(CHUNK), 1, Rows(out, CHUNK), |range, out| {
        for_each_run(index, range.start * CHUNK, out.0, &fill);
    });
}

dispatch! {
    // No fused multiply-add, so that ranks on different CPUs agree.
    fn uniform_run<const FMA: bool, T: Float>(key: u64, bound: f32, index: u64, run: &mut [T]) {
        fill_run(key, index, run, |draws| {
            let mut numbers = [[0.0; LANES]; 4];
            for (numbers, draws) in numbers.iter_mut().zip(draws) {
                for (number, draw) in numbers.iter_mut().zip(draws) {
                    *number = bound * ((*draw as i32 as f32 + 0.5) * (1.0 / 2_147_483_648.0));
                }
            }
            numbers
        });
    }
}

dispatch! {
    // No fused multiply-add, so that ranks on different CPUs agree.
    fn normal_run<const FMA: bool, T: Float>(key: u64, std: f32, index: u64, run: &mut [T]) {
        fill_run(key, index, run, |draws| normal_group(std, draws));
    }
}

/// Computes normal deviates by the Box-Muller transform (1958), which makes two deviates of two words.
#[inline(always)]
fn normal_group(std: f32, draws: &Words<u32>) -> Words<f32> {
    const QUARTER_TURN: i32 = 1 << 30;
    let mut deviates = [[0.0; LANES]; 4];
    for pair in [0, 2] {
        for lane in 0..LANES {
            // Within (0, 1], so that the logarithm is finite.
            let radius = (draws[pair][lane] as f32 + 0.5) * (1.0 / 4_294_967_296.0);
            let radius = (-2.0 * math::log(radius)).max(0.0).sqrt();
            let turn = draws[pair + 1][lane] as i32;
            let cos = |turn: i32| math::cos_turns(turn as f32 * (1.0 / 4_294_967_296.0));
            deviates[pair][lane] = std * (radius * cos(turn));
            deviates[pair + 1][lane] = std * (radius * cos(turn.wrapping_sub(QUARTER_TURN)));
        }
    }
    deviates
}

/// Fills a contiguous run of the global tensor, from element `index` on, with values of the draws.
#[inline(always)]
fn fill_run<T: Float>(
    key: u64,
    index: u64,
    run: &mut [T],
    values: impl Fn(&Words<u32>) -> Words<f32>,
) {
    let mut index = index;
    let mut rest = run;
    while !rest.is_empty() {
        let values = values(&draw_group(key, index / 4));
        let skipped = (index % 4) as usize;
        let (head, tail) = rest.split_at_mut(rest.len().min(GROUP - skipped));
        if head.len() == GROUP {
            interleave(&values, head);
        } else {
            let mut group = [T::narrow_from_f32(0.0); GROUP];
            interleave(&values, &mut group);
            head.copy_from_slice(&group[skipped..skipped + head.len()]);
        }
        index += head.len() as u64;
        rest = tail;
    }
}

/// Draws the words of a group of elements, whose first counter is `counter`.
#[inline(always)]
fn draw_group(key: u64, counter: u64) -> Words<u32> {
    let mut counters = [[0; LANES]; 4];
    let [low, high, _, _] = &mut counters;
    for (lane, (low, high)) in low.iter_mut().zip(high).enumerate() {
        let counter = counter + lane as u64;
        *low = counter as u32;
        *high = (counter >> 32) as u32;
    }
    philox4x32([key as u32, (key >> 32) as u32], counters)
}

/// Writes the values of a group in the order of its elements.
#[inline(always)]
fn interleave<T: Float>(values: &Words<f32>, out: &mut [T]) {
    for (lane, out) in out.chunks_exact_mut(4).enumerate() {
        for (out, word) in out.iter_mut().zip(values) {
            *out = T::narrow_from_f32(word[lane]);
        }
    }
}

/// Calls `f(global index, elements)` for each contiguous run of the global tensor among the elements
/// `start..start + out.len()` of a block.
fn for_each_run<T>(
    index: &BlockIndex,
    start: usize,
    out: &mut [T],
    mut f: impl FnMut(u64, &mut [T]),
) {
    // Trailing dims that are not split are merged into the run of the dim before them.
    let mut run = 1;
    // Elements of the run before the gap, if it has one.
    let mut before_gap = 0;
    for dim in (0..index.local.len()).rev() {
        if index.gap[dim] > 0 {
            before_gap = run * index.gap_at[dim];
        }
        run *= index.local[dim];
        if index.local[dim] != index.global[dim] {
            break;
        }
    }
    let mut position = start;
    let mut rest = out;
    while !rest.is_empty() {
        let in_run = position % run;
        let end = if in_run < before_gap { before_gap } else { run };
        let len = rest.len().min(end - in_run);
        let (head, tail) = rest.split_at_mut(len);
        f(index.global_index(position), head);
        position += len;
        rest = tail;
    }
}
