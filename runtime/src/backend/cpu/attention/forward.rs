//! Forward: per tile of queries, the keys in chunks with an online softmax (Dao et al. 2022; Milakov and Gimelshein
//! 2018).

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::heads::{Head, Shared};
use super::widened;
use super::{LINE, Parts};
#[cfg(target_arch = "x86_64")]
use super::{by_dots, dots};
use crate::backend::AttentionArgs;
use crate::backend::cpu::attention::dense::DenseAttention;
use crate::backend::cpu::float::Float;
use crate::backend::cpu::math::{LANES, exp, fma, fold, lane_max, larger_number};
use crate::backend::cpu::scratch::with_scratch;
use crate::backend::cpu::simd::dispatch;
use crate::backend::cpu::workers::Workers;

/// Queries per tile. Half of the tile on the diagonal is wasted work.
pub(super) const QUERIES: usize = 32;

/// Keys per chunk, a multiple of `QUERIES`: the scores of a tile stay in the second-level cache.
pub(super) const KEYS: usize = 512;

pub fn attention<T: Float>(
    workers: &Workers,
    flops: &AtomicU64,
    s: &DenseAttention,
    args: AttentionArgs,
) {
    let AttentionArgs { q, k, v, mut out, mut lse, .. } = args;
    let (q, k, v) = (q.typed::<T>(), k.typed::<T>(), v.typed::<T>());
    let (out, lse) = (out.typed::<T>(), lse.typed());
    check(s, q.len(), k.len(), lse.len());
    assert_eq!((v.len(), out.len()), (k.len(), q.len()), "attention operands fit {s:?}");
    if q.is_empty() {
        return;
    }
    let (out, lse) = (Shared::new(out), Shared::new(lse));
    let group = s.heads / s.kv_heads;
    workers.each(s.batch * s.kv_heads, |task| {
        let (batch, kv_head) = (task / s.kv_heads, task % s.kv_heads);
        let kv_sizes = [s.seq, s.kv_heads, s.head_dim];
        let key = Head::new(k, kv_sizes, batch, kv_head);
        let value = Head::new(v, kv_sizes, batch, kv_head);
        with_scratch(scratch_len::<T>(s), |scratch| {
            let mut parts = Parts(scratch);
            let mut tiles = tiles_of(s, key, value, &mut parts);
            for head in kv_head * group..(kv_head + 1) * group {
                tiles.turn_to(Head::new(q, [s.seq, s.heads, s.head_dim], batch, head));
                let mut task = Task { s, tiles: &mut *tiles, out: &out, lse: &lse, batch, head };
                for start in (0..s.seq).step_by(QUERIES) {
                    task.tile(start, parts.0, flops);
                }
            }
        });
    });
}

/// The products of tiles of queries with chunks of keys and values.
pub(super) trait Tiles<'a, T> {
    /// Turns to another query head.
    fn turn_to(&mut self, query: Head<'a, T>);

    /// The length of a row of scores of this many keys, and of a row of sums of this many elements.
    fn row(&self, len: usize) -> usize;

    /// `scores = queries * keys^T`.
    fn scores(&self, queries: Range<usize>, keys: Range<usize>, scores: &mut [f32]);

    /// `sum += weights * values`, or without `sum +=` at the first key.
    fn add_values(&mut self, weights: &[f32], keys: Range<usize>, sum: &mut [f32]);
}

fn tiles_of<'a, T: Float>(
    s: &'a DenseAttention,
    key: Head<'a, T>,
    value: Head<'a, T>,
    scratch: &mut Parts<'a>,
) -> Box<dyn Tiles<'a, T> + 'a> {
    #[cfg(target_arch = "x86_64")]
    if by_dots::<T>(s) {
        return Box::new(dots::Forward::new(s, key, value, scratch));
    }
    Box::new(widened::Forward::new(s, key, value, scratch))
}

fn scratch_len<T: Float>(s: &DenseAttention) -> usize {
    let rows = QUERIES.min(s.seq);
    let [dim, keys] = [s.head_dim, KEYS.min(s.seq)].map(|len| len.next_multiple_of(LINE));
    let tile = rows * (dim + keys + 2);
    #[cfg(target_arch = "x86_64")]
    if by_dots::<T>(s) {
        return tile + dots::Forward::scratch_len(s);
    }
    tile + widened::Forward::scratch_len::<T>(s)
}

/// Sizes that both directions rely on.
pub(super) fn check(s: &DenseAttention, q: usize, k: usize, lse: usize) {
    let rows = s.batch * s.seq;
    assert!(s.scale > 0.0, "the order of scores is that of scaled scores: {s:?}");
    assert!(s.kv_heads > 0 && s.heads.is_multiple_of(s.kv_heads), "kv_heads divide heads: {s:?}");
    assert_eq!(q, rows * s.heads * s.head_dim, "attention operands fit {s:?}");
    assert_eq!(k, rows * s.kv_heads * s.head_dim, "attention operands fit {s:?}");
    assert_eq!(lse, rows * s.heads, "attention operands fit {s:?}");
}

/// The first `keys` keys in chunks.
pub(super) fn chunks(keys: usize) -> impl Iterator<Item = Range<usize>> {
    (0..keys).step_by(KEYS).map(move |start| start..keys.min(start + KEYS))
}

/// One query head.
struct Task<'a, 't, T> {
    s: &'a DenseAttention,
    tiles: &'a mut (dyn Tiles<'t, T> + 't),
    out: &'a Shared<'a, T>,
    lse: &'a Shared<'a, f32>,
    batch: usize,
    head: usize,
}

impl<T: Float> Task<'_, '_, T> {
    /// The queries from `start` on.
    fn tile(&mut self, start: usize, scratch: &mut [f32], flops: &AtomicU64) {
        let &DenseAttention { seq, heads, head_dim, scale, causal, .. } = self.s;
        let rows = QUERIES.min(seq - start);
        let queries = start..start + rows;
        let last_key = if causal { queries.end } else { seq };
        let dim = self.tiles.row(head_dim);
        let (sum, rest) = scratch.split_at_mut(rows * dim);
        let (max, rest) = rest.split_at_mut(rows);
        let (total, scores) = rest.split_at_mut(rows);
        max.fill(f32::NEG_INFINITY);
        total.fill(0.0);
        for chunk in chunks(last_key) {
            let row = self.tiles.row(chunk.len());
            let scores = &mut scores[..rows * row];
            self.tiles.scores(queries.clone(), chunk.clone(), scores);
            // What fills up a row is hidden like the keys after a query.
            let visible = if causal { start + 1 - chunk.start } else { chunk.len() };
            soften(scores, row, visible, causal, scale, max, total, sum);
            self.tiles.add_values(scores, chunk, sum);
        }
        flops.fetch_add(4 * (rows * last_key * head_dim) as u64, Ordering::Relaxed);

        let lse_at = (self.batch * heads + self.head) * seq + start;
        // SAFETY: this sample, head and tile belong to this task alone.
        let lse = unsafe { self.lse.piece(lse_at, rows) };
        for row in 0..rows {
            lse[row] = max[row] + total[row].ln();
            let at = ((self.batch * seq + start + row) * heads + self.head) * head_dim;
            // SAFETY: as above.
            let out = unsafe { self.out.piece(at, head_dim) };
            scale_into(&sum[row * dim..][..head_dim], 1.0 / total[row], out);
        }
    }
}

dispatch! {
    fn scale_into<const FMA: bool, T: Float>(x: &[f32], factor: f32, out: &mut [T]) {
        for (out, x) in out.iter_mut().zip(x) {
            *out = T::narrow(x * factor);
        }
    }
}

dispatch! {
    /// Turns scores into unnormalised weights relative to the running maximum, and rescales what was summed before.
    ///
    /// Row `i` sees `visible + i` keys of the chunk if causal, else `visible`.
    fn soften<const FMA: bool>(
        scores: &mut [f32],
        keys: usize,
        visible: usize,
        causal: bool,
        scale: f32,
        max: &mut [f32],
        total: &mut [f32],
        sum: &mut [f32],
    ) {
        // Rows whose maxima are found before their weights, so that the CPU need not wait for each one.
        const GROUP: usize = 8;
        let dim = sum.len() / max.len();
        for (group, scores) in scores.chunks_mut(GROUP * keys).enumerate() {
            let mut new = [0f32; GROUP];
            for (i, scores) in scores.chunks_exact_mut(keys).enumerate() {
                let row = group * GROUP + i;
                let visible = if causal { keys.min(visible + row) } else { visible };
                // Whole groups of lanes are much faster: a few hidden scores are worked on too, and get weight zero.
                let padded = keys.min(visible.next_multiple_of(LANES));
                scores[visible..padded].fill(f32::NEG_INFINITY);
                scores[padded..].fill(0.0);
                // A NaN may get lost here; its weight is NaN all the same.
                let largest = scale * lane_max(&scores[..padded], larger_number);
                new[i] = larger_number(max[row], largest);
            }
            for (i, scores) in scores.chunks_exact_mut(keys).enumerate() {
                let row = group * GROUP + i;
                let visible = if causal { keys.min(visible + row) } else { visible };
                let padded = keys.min(visible.next_multiple_of(LANES));
                let weights = weigh::<FMA>(&mut scores[..padded], scale, new[i]);
                let old = max[row];
                max[row] = new[i];
                if old == f32::NEG_INFINITY {
                    total[row] = weights;
                } else {
                    let rescale = exp::<FMA>(old - new[i]);
                    total[row] = total[row] * rescale + weights;
                    for sum in &mut sum[row * dim..][..dim] {
                        *sum *= rescale;
                    }
                }
            }
        }
    }
}

/// Replaces scores by `exp(scale * score - max)` and returns their sum.
#[inline(always)]
fn weigh<const FMA: bool>(scores: &mut [f32], scale: f32, max: f32) -> f32 {
    let mut lanes = [0f32; LANES];
    let mut parts = scores.chunks_exact_mut(LANES);
    for part in &mut parts {
        for (lane, score) in lanes.iter_mut().zip(part) {
            *score = exp::<FMA>(fma::<FMA>(*score, scale, -max));
            *lane += *score;
        }
    }
    for (lane, score) in lanes.iter_mut().zip(parts.into_remainder()) {
        *score = exp::<FMA>(fma::<FMA>(*score, scale, -max));
        *lane += *score;
    }
    fold(lanes, |a, b| a + b)
}
