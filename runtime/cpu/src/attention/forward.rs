//! Forward: per tile of queries, the keys in chunks with an online softmax, whose log-sum-exp backward reads.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(target_arch = "x86_64")]
use super::dots;
use super::dropout::WeightFactors;
use super::forward_tiles::{ForwardTiles, KEYS, QUERIES, key_chunks};
use super::heads::{Head, Heads};
use super::mask::{Mask, VisibleKeys};
use super::online_softmax::{OnlineRows, online_softmax};
use super::results::{InterleavedOutput, Results};
use super::scoring::Scoring;
use super::sizes::{TaskSizes, check_heads, check_lse, check_rows, check_shape};
use super::widened;
use super::{LINE, ScratchParts};
use crate::float::Float;
use crate::gemm::PANEL;
use crate::scratch::with_scratch;
use crate::workers::Workers;
use meshwright_backend::AttentionShape;
use meshwright_backend::ops::attention::AttentionArgs;

pub fn attention<T: Float>(
    workers: &Workers,
    flops: &AtomicU64,
    s: &AttentionShape,
    args: AttentionArgs,
) {
    let AttentionArgs { q, k, v, ranges, bias, sinks, out, lse } = args;
    let (q, k, v) = (q.typed::<T>(), k.typed::<T>(), v.typed::<T>());
    let lse = lse.into_typed::<f32>();
    let sinks = sinks.map(|sinks| sinks.typed::<f32>());
    check_shape(s);
    check_rows(s, s.queries, [s.heads, s.head_dim], &[q.len()]);
    check_rows(s, s.queries, [s.heads, s.value_dim], &[out.len()]);
    check_rows(s, s.keys, [s.kv_heads, s.head_dim], &[k.len()]);
    check_rows(s, s.keys, [s.kv_heads, s.value_dim], &[v.len()]);
    check_lse(s, lse.len());
    if let Some(sinks) = sinks {
        check_heads(s, 1, sinks.len());
    }
    let call = ForwardCall {
        s,
        queries: Heads::new(q, s.queries, [s.heads, s.head_dim]),
        keys: Heads::new(k, s.keys, [s.kv_heads, s.head_dim]),
        values: Heads::new(v, s.keys, [s.kv_heads, s.value_dim]),
        mask: Mask::new(s, ranges),
        scoring: Scoring::new(s, bias),
        sinks,
        dropout: WeightFactors::new(s),
        out: Results::new(out, s.queries, [s.heads, s.value_dim], false),
        lse: InterleavedOutput::new(lse),
        flops,
    };
    let section = section_len(s, ranges.is_some(), workers.threads());
    let sections = s.queries.len.div_ceil(section);
    workers.for_each_task(s.batch * s.kv_heads * sections, |task| {
        let (head, section_index) = (task / sections, task % sections);
        let start = section_index * section;
        let queries = start..s.queries.len.min(start + section);
        call.section(head / s.kv_heads, head % s.kv_heads, queries);
    });
}

/// Returns the queries of a task, a multiple of a tile.
///
/// All of a sample, unless threads would have nothing to do, or packed keys would be far more than a task needs.
fn section_len(s: &AttentionShape, has_ranges: bool, threads: usize) -> usize {
    // Below, packing the keys for every task would not pay.
    const MIN: usize = 4 * QUERIES;
    // Above, the keys before the first visible one would take more memory than packing some of them twice takes time.
    const MAX_OF_WINDOWS: usize = 4096;
    let tasks = (s.batch * s.kv_heads).max(1);
    // Tasks of causal sections differ in work, so each thread gets several.
    let parts = if tasks < threads { (4 * threads).div_ceil(tasks) } else { 1 };
    let is_window = s.band.before.is_some() || has_ranges;
    let most = if is_window { MAX_OF_WINDOWS } else { usize::MAX };
    s.queries.len.div_ceil(parts).clamp(MIN, most).next_multiple_of(QUERIES)
}

fn tiles_of<'a, T: Float>(
    sizes: TaskSizes,
    key: Head<'a, T>,
    value: Head<'a, T>,
    scratch: &mut ScratchParts<'a>,
) -> Box<dyn ForwardTiles<'a, T> + 'a> {
    #[cfg(target_arch = "x86_64")]
    if sizes.by_dots::<T>() {
        return Box::new(dots::DotsForward::new(sizes, key, value, scratch));
    }
    Box::new(widened::WidenedForward::new(sizes, key, value, scratch))
}

fn scratch_len<T: Float>(sizes: TaskSizes) -> usize {
    let rows = QUERIES.min(sizes.queries);
    let [dim, keys] = [sizes.value_dim, KEYS.min(sizes.keys)].map(|len| len.next_multiple_of(LINE));
    let tile = rows * (dim + keys + 2);
    #[cfg(target_arch = "x86_64")]
    if sizes.by_dots::<T>() {
        return tile + dots::DotsForward::scratch_len(sizes);
    }
    tile + widened::WidenedForward::scratch_len(sizes)
}

/// The operands of a call.
struct ForwardCall<'a, T> {
    s: &'a AttentionShape,
    queries: Heads<'a, T>,
    keys: Heads<'a, T>,
    values: Heads<'a, T>,
    mask: Mask,
    scoring: Scoring<'a>,
    sinks: Option<&'a [f32]>,
    dropout: Option<WeightFactors>,
    out: Results<'a, T>,
    lse: InterleavedOutput<'a, f32>,
    flops: &'a AtomicU64,
}

impl<T: Float> ForwardCall<'_, T> {
    /// Computes the attention of some queries, of all heads that read a key/value head.
    fn section(&self, sample: usize, kv_head: usize, queries: Range<usize>) {
        let visible = self.mask.of_sample(sample);
        let keys = visible.of_queries(queries.clone()).keys();
        let heads = self.s.heads_of(kv_head);
        if heads.is_empty() {
            return;
        }
        // Chunks of keys begin at the same keys for all sections.
        let keys = keys.start / KEYS * KEYS..keys.end;
        let &AttentionShape { head_dim, value_dim, .. } = self.s;
        let sizes = TaskSizes { queries: queries.len(), keys: keys.len(), head_dim, value_dim };
        with_scratch(scratch_len::<T>(sizes), |scratch| {
            let mut parts = ScratchParts(scratch);
            let key = self.keys.head(sample, kv_head).rows(keys.clone());
            let value = self.values.head(sample, kv_head).rows(keys.clone());
            let mut tiles = tiles_of(sizes, key, value, &mut parts);
            for head in heads {
                tiles.turn_to_head(self.queries.head(sample, head).rows(queries.clone()));
                let mut pass = HeadForward {
                    call: self,
                    visible,
                    tiles: &mut *tiles,
                    first: [queries.start, keys.start],
                    sample,
                    head,
                };
                for start in queries.clone().step_by(QUERIES) {
                    pass.compute_tile(start..queries.end.min(start + QUERIES), parts.0);
                }
            }
        });
    }
}

/// Forward of one query head.
struct HeadForward<'a, 't, T> {
    call: &'a ForwardCall<'a, T>,
    visible: VisibleKeys<'a>,
    tiles: &'a mut (dyn ForwardTiles<'t, T> + 't),
    /// First query and first key of the tiles.
    first: [usize; 2],
    sample: usize,
    head: usize,
}

impl<T: Float> HeadForward<'_, '_, T> {
    fn compute_tile(&mut self, queries: Range<usize>, scratch: &mut [f32]) {
        let ForwardCall { s, scoring, dropout, .. } = self.call;
        let rows = queries.len();
        let visible = self.visible.of_queries(queries.clone());
        let keys = visible.keys();
        let dim = self.tiles.row_len(s.value_dim);
        let (sum, rest) = scratch.split_at_mut(rows * dim);
        let (max, rest) = rest.split_at_mut(rows);
        let (total, scores) = rest.split_at_mut(rows);
        max.fill(f32::NEG_INFINITY);
        total.fill(0.0);
        let [first_query, first_key] = self.first;
        let packed = if keys.is_empty() {
            sum.fill(0.0);
            keys
        } else {
            keys.start / PANEL * PANEL..keys.end
        };
        for (index, chunk) in key_chunks(packed.clone()).enumerate() {
            let row = self.tiles.row_len(chunk.len());
            let scores = &mut scores[..rows * row];
            let inside = chunk.start - first_key..chunk.end - first_key;
            let tile = queries.start - first_query..queries.end - first_query;
            self.tiles.compute_scores(tile, inside.clone(), scores);
            scoring.apply(self.head, queries.clone(), chunk.start, row, scores);
            let online = OnlineRows { max: &mut *max, total: &mut *total, sum: &mut *sum };
            online_softmax(scores, row, visible, chunk.start, scoring.scale_left(), online);
            if let Some(dropout) = dropout {
                let at = [self.sample, self.head];
                dropout.multiply(at, queries.clone(), chunk.clone(), row, scores);
            }
            self.tiles.add_values(scores, inside, index > 0, sum);
        }
        let count = 2 * (rows * packed.len() * (s.head_dim + s.value_dim)) as u64;
        self.call.flops.fetch_add(count, Ordering::Relaxed);

        let lse_at = (self.sample * s.heads + self.head) * s.queries.pitch + queries.start;
        // SAFETY: this sample, head and tile belong to this task alone.
        let lse = unsafe { self.call.lse.piece(lse_at, rows) };
        let kept = dropout.as_ref().map_or(1.0, |dropout| dropout.kept);
        let sink = self.call.sinks.map(|sinks| sinks[self.head]);
        for row in 0..rows {
            let (row_lse, factor) = normalize(max[row], total[row], sink);
            lse[row] = row_lse;
            let output_row = [self.sample, queries.start + row, self.head];
            let sum = &mut sum[row * dim..][..s.value_dim];
            if visible.first[row] >= visible.end[row] {
                // Values of masked keys have weight zero, and zero times NaN is not zero.
                sum.fill(0.0);
            }
            // SAFETY: as above.
            unsafe { self.call.out.put_row(output_row, sum, factor * kept) };
        }
    }
}

/// Returns the log-sum-exp of a row, and the factor that turns weights relative to `max` into weights of the softmax.
fn normalize(max: f32, total: f32, sink: Option<f32>) -> (f32, f32) {
    let (max, total, rescale) = match sink {
        Some(sink) if sink > f32::NEG_INFINITY || sink.is_nan() => {
            let largest = if max > sink { max } else { sink };
            let rescale = (max - largest).exp();
            (largest, total * rescale + (sink - largest).exp(), rescale)
        }
        _ => (max, total, 1.0),
    };
    // Of no weights at all.
    let factor = if total == 0.0 { 0.0 } else { rescale / total };
    (max + total.ln(), factor)
}
