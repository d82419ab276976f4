//! Forward: per tile of queries, the keys in chunks with an online softmax (Dao et al. 2022; Milakov and Gimelshein
//! 2018).

use std::sync::atomic::{AtomicU64, Ordering};

use super::heads::{Head, Shared};
use crate::backend::AttentionShape;
use crate::backend::cpu::gemm::{Matrix, Multiply, OneThread};
use crate::backend::cpu::math::{LANES, exp, fma, fold, lane_max, larger_number};
use crate::backend::cpu::scratch::with_scratch;
use crate::backend::cpu::simd::dispatch;
use crate::backend::cpu::workers::Workers;

/// Queries per tile. Half of the tile on the diagonal is computed in vain.
const QUERIES: usize = 32;

/// Keys per chunk, a multiple of `QUERIES`: the scores of a tile stay in the second-level cache.
const KEYS: usize = 512;

#[allow(clippy::too_many_arguments)]
pub fn attention(
    workers: &Workers,
    flops: &AtomicU64,
    s: &AttentionShape,
    q: &[f32],
    k: &[f32],
    v: &[f32],
    out: &mut [f32],
    lse: &mut [f32],
) {
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
        let tile = QUERIES.min(s.seq);
        let (keys, scores) = (s.seq * s.head_dim, tile * KEYS.min(s.seq));
        let sums = tile * (s.head_dim + 2);
        with_scratch(keys + scores + sums, |scratch| {
            let (keys, rest) = scratch.split_at_mut(keys);
            for (chunk, start) in chunks(0..s.seq) {
                let tile = &mut keys[start * s.head_dim..][..chunk.len() * s.head_dim];
                key.transpose(chunk, tile);
            }
            for head in kv_head * group..(kv_head + 1) * group {
                let query = Head::new(q, [s.seq, s.heads, s.head_dim], batch, head);
                let task = Task { s, query, keys, value, out: &out, lse: &lse, batch, head };
                for start in (0..s.seq).step_by(QUERIES) {
                    task.tile(start, rest, flops);
                }
            }
        });
    });
}

/// Sizes that both directions rely on.
pub(super) fn check(s: &AttentionShape, q: usize, k: usize, lse: usize) {
    let rows = s.batch * s.seq;
    assert!(s.scale > 0.0, "the order of scores is that of scaled scores: {s:?}");
    assert!(s.kv_heads > 0 && s.heads.is_multiple_of(s.kv_heads), "kv_heads divide heads: {s:?}");
    assert_eq!(q, rows * s.heads * s.head_dim, "attention operands fit {s:?}");
    assert_eq!(k, rows * s.kv_heads * s.head_dim, "attention operands fit {s:?}");
    assert_eq!(lse, rows * s.heads, "attention operands fit {s:?}");
}

/// Key chunks with their first key.
fn chunks(keys: std::ops::Range<usize>) -> impl Iterator<Item = (std::ops::Range<usize>, usize)> {
    keys.clone().step_by(KEYS).map(move |start| (start..keys.end.min(start + KEYS), start))
}

/// One query head.
struct Task<'a> {
    s: &'a AttentionShape,
    query: Head<'a>,
    /// Transposed keys, chunk by chunk.
    keys: &'a [f32],
    value: Head<'a>,
    out: &'a Shared<'a>,
    lse: &'a Shared<'a>,
    batch: usize,
    head: usize,
}

impl Task<'_> {
    /// The queries from `start` on.
    fn tile(&self, start: usize, scratch: &mut [f32], flops: &AtomicU64) {
        let &AttentionShape { seq, heads, head_dim, scale, causal, .. } = self.s;
        let rows = QUERIES.min(seq - start);
        let last_key = if causal { start + rows } else { seq };
        let (sum, rest) = scratch.split_at_mut(rows * head_dim);
        let (max, rest) = rest.split_at_mut(rows);
        let (total, scores) = rest.split_at_mut(rows);
        max.fill(f32::NEG_INFINITY);
        total.fill(0.0);
        for (chunk, first) in chunks(0..last_key) {
            let whole = KEYS.min(seq - first);
            let keys = &self.keys[first * head_dim..][..whole * head_dim];
            let scores = &mut scores[..rows * chunk.len()];
            let queries = Matrix::rows(self.query.rows_from(start), self.query.stride);
            let sizes = [rows, chunk.len(), head_dim];
            OneThread.multiply(sizes, queries, Matrix::rows(keys, whole), 0.0, scores);
            let visible = if causal { start + 1 - first } else { chunk.len() };
            soften(scores, chunk.len(), visible, causal, scale, max, total, sum);
            let values = Matrix::rows(self.value.rows_from(first), self.value.stride);
            let weights = Matrix::rows(scores, chunk.len());
            let beta = if first == 0 { 0.0 } else { 1.0 };
            OneThread.multiply([rows, head_dim, chunk.len()], weights, values, beta, sum);
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
            let inv = 1.0 / total[row];
            for (out, sum) in out.iter_mut().zip(&sum[row * head_dim..]) {
                *out = sum * inv;
            }
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
        // Rows whose maxima are found before their weights, so that the processor need not wait for each one.
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
