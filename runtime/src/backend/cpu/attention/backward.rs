//! Backward: per block of keys, the queries in chunks; weights are recomputed from `lse` (Dao et al. 2022).

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::backward_tiles::{KEYS, QUERIES, Tiles};
#[cfg(target_arch = "x86_64")]
use super::dots;
use super::head_sums::HeadSums;
use super::heads::{Head, Heads};
use super::mask::{Mask, VisibleKeys};
use super::results::{Results, Shared};
use super::scoring::{Distances, Scoring};
use super::shift::{Outputs, SinkGradient};
use super::sizes::{TaskSizes, check_heads, check_lse, check_rows, check_shape};
use super::soften::{multiply_visible, soften_backward};
use super::widened;
use super::{LINE, Parts};
use crate::backend::cpu::float::Float;
use crate::backend::cpu::scratch::with_scratch;
use crate::backend::cpu::workers::Workers;
use crate::backend::{AttentionBackwardArgs, AttentionShape};

pub fn attention_backward<T: Float>(
    workers: &Workers,
    flops: &AtomicU64,
    s: &AttentionShape,
    args: AttentionBackwardArgs,
) {
    let AttentionBackwardArgs { q, k, v, ranges, bias, sinks, out, lse, dout, .. } = args;
    let AttentionBackwardArgs { accumulate, dq, dk, dv, dbias, dsinks, .. } = args;
    let [q, k, v, dout] = [q, k, v, dout].map(|operand| operand.typed::<T>());
    let lse: &[f32] = lse.typed();
    let (q_sizes, out_sizes) = ([s.heads, s.head_dim], [s.heads, s.value_dim]);
    let (k_sizes, v_sizes) = ([s.kv_heads, s.head_dim], [s.kv_heads, s.value_dim]);
    check_shape(s);
    check_rows(s, s.queries, q_sizes, &[q.len(), dq.len()]);
    check_rows(s, s.queries, out_sizes, &[out.len(), dout.len()]);
    check_rows(s, s.keys, k_sizes, &[k.len(), dk.len()]);
    check_rows(s, s.keys, v_sizes, &[v.len(), dv.len()]);
    check_lse(s, lse.len());

    let mut dbias = dbias.map(|dbias| {
        let bias = bias.as_ref().expect("a bias that has a gradient");
        let distances = Distances::new(s, bias);
        (distances, HeadSums::new(s, distances.count, dbias, accumulate))
    });
    let mut dsinks = dsinks.map(|dsinks| {
        let sinks: &[f32] = sinks.expect("sinks that have a gradient").typed();
        check_heads(s, 1, sinks.len());
        (sinks, HeadSums::new(s, 1, dsinks, false))
    });
    let call = Call {
        s,
        queries: Heads::new(q, s.queries, q_sizes),
        keys: Heads::new(k, s.keys, k_sizes),
        values: Heads::new(v, s.keys, v_sizes),
        outs: Outputs::new(out, s.queries, out_sizes),
        douts: Heads::new(dout, s.queries, out_sizes),
        lse,
        mask: Mask::new(s, ranges),
        scoring: Scoring::new(s, bias),
        dq: Results::new(dq, s.queries, q_sizes, accumulate),
        dk: Results::new(dk, s.keys, k_sizes, accumulate),
        dv: Results::new(dv, s.keys, v_sizes, accumulate),
        dbias: dbias.as_mut().map(|(distances, sums)| (*distances, sums.parts())),
        dsinks: dsinks.as_mut().map(|(sinks, sums)| SinkGradient { sinks, parts: sums.parts() }),
        flops,
    };
    workers.each(s.batch * s.kv_heads, |task| {
        call.kv_head(task / s.kv_heads, task % s.kv_heads);
    });
    drop(call);
    let sums = dbias.map(|(_, sums)| sums).into_iter().chain(dsinks.map(|(_, sums)| sums));
    sums.for_each(HeadSums::finish);
}

fn tiles_of<'a, T: Float>(
    sizes: TaskSizes,
    key: Head<'a, T>,
    value: Head<'a, T>,
    scratch: &mut Parts<'a>,
) -> Box<dyn Tiles<'a, T> + 'a> {
    #[cfg(target_arch = "x86_64")]
    if sizes.by_dots::<T>() {
        return Box::new(dots::Backward::new(sizes, key, value, scratch));
    }
    Box::new(widened::Backward::new(sizes, key, value, scratch))
}

/// The operands of a call.
struct Call<'a, T> {
    s: &'a AttentionShape,
    queries: Heads<'a, T>,
    keys: Heads<'a, T>,
    values: Heads<'a, T>,
    outs: Outputs<'a, T>,
    douts: Heads<'a, T>,
    lse: &'a [f32],
    mask: Mask,
    scoring: Scoring<'a>,
    dq: Results<'a, T>,
    dk: Results<'a, T>,
    dv: Results<'a, T>,
    dbias: Option<(Distances, Shared<'a, f64>)>,
    dsinks: Option<SinkGradient<'a>>,
    flops: &'a AtomicU64,
}

impl<T: Float> Call<'_, T> {
    /// Elements of a chunk of queries by a block of keys.
    fn tile_len(&self) -> usize {
        let keys = KEYS.min(self.s.keys.len).next_multiple_of(LINE);
        keys * QUERIES.min(self.s.queries.len)
    }

    /// Of one query head: shifts, one row of outputs, and tiles of weights, of gradients of scores, and of the
    /// derivatives of scores.
    fn own_lens(&self) -> [usize; 5] {
        let (s, tile) = (self.s, self.tile_len());
        [s.queries.len, s.value_dim, tile, tile, if self.scoring.is_plain() { 0 } else { tile }]
    }

    fn sizes(&self) -> TaskSizes {
        let &AttentionShape { queries, keys, head_dim, value_dim, .. } = self.s;
        TaskSizes { queries: queries.len, keys: keys.len, head_dim, value_dim }
    }

    fn scratch_len(&self) -> usize {
        let own = Parts::len(&self.own_lens());
        #[cfg(target_arch = "x86_64")]
        if self.sizes().by_dots::<T>() {
            return own + dots::Backward::scratch_len(self.sizes());
        }
        own + widened::Backward::scratch_len::<T>(self.sizes())
    }

    /// All heads that read a key/value head.
    fn kv_head(&self, sample: usize, kv_head: usize) {
        with_scratch(self.scratch_len(), |scratch| {
            let mut parts = Parts(scratch);
            let [shift, wide, weights, dscores, slopes] =
                self.own_lens().map(|len| parts.take(len));
            let key = self.keys.head(sample, kv_head);
            let value = self.values.head(sample, kv_head);
            let mut tiles = tiles_of(self.sizes(), key, value, &mut parts);
            for head in self.s.heads_of(kv_head) {
                let at = [sample, head];
                let dout = self.douts.head(sample, head);
                self.outs.shifts(at, dout, wide, shift);
                let lse = self.lse_of(at);
                if let Some(dsinks) = &self.dsinks {
                    dsinks.sum(at, lse, shift);
                }
                tiles.turn_to(self.queries.head(sample, head), dout);
                let visible = self.mask.of_sample(sample);
                let tiles = &mut *tiles;
                Pass { call: self, visible, tiles, at, lse, shift, weights, dscores, slopes }.run();
                for row in 0..self.s.queries.len {
                    // SAFETY: this sample and query head belong to this task alone.
                    unsafe { self.dq.put([sample, row, head], tiles.dquery(row), 1.0) };
                }
            }
            tiles.finish();
            for row in 0..self.s.keys.len {
                let at = [sample, row, kv_head];
                // SAFETY: this sample and key/value head belong to this task alone.
                unsafe { self.dk.put(at, tiles.dkey(row), 1.0) };
                // SAFETY: as above.
                unsafe { self.dv.put(at, tiles.dvalue(row), 1.0) };
            }
        });
    }

    fn lse_of(&self, [sample, head]: [usize; 2]) -> &[f32] {
        let layout = self.s.queries;
        &self.lse[(sample * self.s.heads + head) * layout.pitch..][..layout.len]
    }
}

/// One query head, with its scratch.
struct Pass<'a, 't, T> {
    call: &'a Call<'a, T>,
    visible: VisibleKeys<'a>,
    tiles: &'a mut (dyn Tiles<'t, T> + 't),
    /// Sample and query head.
    at: [usize; 2],
    lse: &'a [f32],
    /// Per query, the sum of `dout * out`: what the softmax subtracts from every gradient of a weight.
    shift: &'a [f32],
    weights: &'a mut [f32],
    dscores: &'a mut [f32],
    /// Derivatives of scores with respect to dot products, if these are not the scale alone.
    slopes: &'a mut [f32],
}

impl<T: Float> Pass<'_, '_, T> {
    /// All blocks of keys.
    fn run(&mut self) {
        let s = self.call.s;
        // A first block that every query sees writes their gradients; others need something to add to.
        let first_block = 0..s.keys.len.min(KEYS);
        let overwrites = self.queries(first_block.clone()) == (0..s.queries.len);
        if !overwrites {
            self.tiles.clear_dqueries();
        }
        for start in (0..s.keys.len).step_by(KEYS) {
            self.block(start..s.keys.len.min(start + KEYS), start > 0 || !overwrites);
        }
    }

    /// The queries that see a block of keys, from an even one on.
    fn queries(&self, keys: Range<usize>) -> Range<usize> {
        let queries = self.visible.queries(keys);
        queries.start / 2 * 2..queries.end
    }

    /// A block of keys against every query that sees it.
    fn block(&mut self, keys: Range<usize>, add_dqueries: bool) {
        let Call { s, scoring, dbias, flops, .. } = self.call;
        let [sample, head] = self.at;
        let row = self.tiles.row(keys.len());
        let all = self.queries(keys.clone());
        for first in all.clone().step_by(QUERIES) {
            let queries = first..all.end.min(first + QUERIES);
            let visible = self.visible.of(queries.clone());
            let weights = &mut self.weights[..queries.len() * row];
            let dscores = &mut self.dscores[..queries.len() * row];
            self.tiles.products(queries.clone(), keys.clone(), weights, dscores);
            let (lse, shift) = (&self.lse[queries.clone()], &self.shift[queries.clone()]);
            let block = [keys.start, keys.len()];
            if scoring.is_plain() {
                let scale = s.scale;
                soften_backward(weights, dscores, row, visible, block, scale, scale, lse, shift);
            } else {
                let slopes = &mut self.slopes[..queries.len() * row];
                scoring.apply_with_slopes(head, queries.clone(), keys.start, row, weights, slopes);
                soften_backward(weights, dscores, row, visible, block, 1.0, 1.0, lse, shift);
                if let Some((distances, parts)) = dbias {
                    let len = distances.count;
                    // SAFETY: this sample and head belong to this task alone.
                    let part = unsafe { parts.piece((sample * s.heads + head) * len, len) };
                    distances.add_tile(queries.clone(), visible, block, row, dscores, part);
                }
                multiply_visible(dscores, slopes, row, visible, block);
            }
            let pairs = (queries.len() * keys.len()) as u64;
            let per_pair = (6 * s.head_dim + 4 * s.value_dim) as u64;
            flops.fetch_add(pairs * per_pair, Ordering::Relaxed);
            self.tiles.add(queries, keys.clone(), weights, dscores, add_dqueries);
        }
    }
}
