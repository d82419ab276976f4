//! Backward: per block of keys, the queries in chunks; weights are recomputed from `lse` (Dao et al. 2022).

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::forward::check;
use super::heads::{Head, Shared};
use super::widened;
use super::{LINE, Parts};
#[cfg(target_arch = "x86_64")]
use super::{by_dots, dots};
use crate::backend::AttentionBackwardArgs;
use crate::backend::cpu::attention::dense::DenseAttention;
use crate::backend::cpu::float::Float;
use crate::backend::cpu::math::{exp, fma, lane_sum};
use crate::backend::cpu::scratch::with_scratch;
use crate::backend::cpu::simd::dispatch;
use crate::backend::cpu::workers::Workers;

/// Keys per block. Half of the tile on the diagonal is wasted work.
pub(super) const KEYS: usize = 64;

/// Queries per chunk: two tiles of scores stay in the second-level cache.
pub(super) const QUERIES: usize = 512;

pub fn attention_backward<T: Float>(
    workers: &Workers,
    flops: &AtomicU64,
    s: &DenseAttention,
    args: AttentionBackwardArgs,
) {
    let AttentionBackwardArgs { q, k, v, out, lse, dout, mut dq, mut dk, mut dv, .. } = args;
    let [q, k, v, out, dout] = [q, k, v, out, dout].map(|operand| operand.typed::<T>());
    let lse: &[f32] = lse.typed();
    let (dq, dk, dv) = (dq.typed::<T>(), dk.typed::<T>(), dv.typed::<T>());
    check(s, q.len(), k.len(), lse.len());
    assert_eq!([v.len(), dk.len(), dv.len()], [k.len(); 3], "attention operands fit {s:?}");
    assert_eq!([out.len(), dout.len(), dq.len()], [q.len(); 3], "attention operands fit {s:?}");
    if q.is_empty() {
        return;
    }
    let &DenseAttention { seq, heads, kv_heads, head_dim, .. } = s;
    let (dq, dk, dv) = (Shared::new(dq), Shared::new(dk), Shared::new(dv));
    let group = heads / kv_heads;
    workers.each(s.batch * kv_heads, |task| {
        let (batch, kv_head) = (task / kv_heads, task % kv_heads);
        let kv_sizes = [seq, kv_heads, head_dim];
        let key = Head::new(k, kv_sizes, batch, kv_head);
        let value = Head::new(v, kv_sizes, batch, kv_head);
        with_scratch(scratch_len::<T>(s), |scratch| {
            let mut parts = Parts(scratch);
            let (shift, weights) = (parts.take(seq), parts.take(tile_len(s)));
            let dscores = parts.take(tile_len(s));
            let mut tiles = tiles_of(s, key, value, &mut parts);
            for head in kv_head * group..(kv_head + 1) * group {
                let q_sizes = [seq, heads, head_dim];
                let dout = Head::new(dout, q_sizes, batch, head);
                let out = Head::new(out, q_sizes, batch, head);
                for (row, shift) in shift.iter_mut().enumerate() {
                    *shift = dot(dout.row(row), out.row(row));
                }
                tiles.turn_to(Head::new(q, q_sizes, batch, head), dout);
                let lse = &lse[(batch * heads + head) * seq..][..seq];
                let mut pass = Pass { s, tiles: &mut *tiles, lse, shift, weights, dscores };
                for start in (0..seq).step_by(KEYS) {
                    pass.block(start..seq.min(start + KEYS), flops);
                }
                for row in 0..seq {
                    let at = ((batch * seq + row) * heads + head) * head_dim;
                    // SAFETY: this sample and query head belong to this task alone.
                    tiles.write_dquery(row, unsafe { dq.piece(at, head_dim) });
                }
            }
            tiles.finish();
            for row in 0..seq {
                let at = ((batch * seq + row) * kv_heads + kv_head) * head_dim;
                // SAFETY: this sample and key/value head belong to this task alone.
                tiles.write_dkey(row, unsafe { dk.piece(at, head_dim) });
                // SAFETY: as above.
                tiles.write_dvalue(row, unsafe { dv.piece(at, head_dim) });
            }
        });
    });
}

/// The products of chunks of queries with blocks of keys and values, and the gradients that they are summed up to.
pub(super) trait Tiles<'a, T> {
    /// Turns to another query head, and the gradient of its output.
    fn turn_to(&mut self, query: Head<'a, T>, dout: Head<'a, T>);

    /// The length of a row of scores of this many keys.
    fn row(&self, keys: usize) -> usize;

    /// `scores = queries * keys^T` and `dweights = douts * values^T`.
    fn products(
        &mut self,
        queries: Range<usize>,
        keys: Range<usize>,
        scores: &mut [f32],
        dweights: &mut [f32],
    );

    /// `dvalues += weights^T * douts`, `dkeys += dscores^T * queries`, and `dqueries += dscores * keys`, or without
    /// `dqueries +=` at the first key.
    fn add(&mut self, queries: Range<usize>, keys: Range<usize>, weights: &[f32], dscores: &[f32]);

    /// The gradient of one query of the present head.
    fn write_dquery(&self, row: usize, out: &mut [T]);

    /// Ends the sums over query heads.
    fn finish(&mut self) {}

    /// The gradient of one key, once finished.
    fn write_dkey(&self, row: usize, out: &mut [T]);

    /// The gradient of one value, once finished.
    fn write_dvalue(&self, row: usize, out: &mut [T]);
}

fn tiles_of<'a, T: Float>(
    s: &'a DenseAttention,
    key: Head<'a, T>,
    value: Head<'a, T>,
    scratch: &mut Parts<'a>,
) -> Box<dyn Tiles<'a, T> + 'a> {
    #[cfg(target_arch = "x86_64")]
    if by_dots::<T>(s) {
        return Box::new(dots::Backward::new(s, key, value, scratch));
    }
    Box::new(widened::Backward::new(s, key, value, scratch))
}

/// Elements of a chunk of queries by a block of keys.
fn tile_len(s: &DenseAttention) -> usize {
    KEYS.min(s.seq).next_multiple_of(LINE) * QUERIES.min(s.seq)
}

fn scratch_len<T: Float>(s: &DenseAttention) -> usize {
    let own = Parts::len(&[s.seq, tile_len(s), tile_len(s)]);
    #[cfg(target_arch = "x86_64")]
    if by_dots::<T>(s) {
        return own + dots::Backward::scratch_len(s);
    }
    own + widened::Backward::scratch_len::<T>(s)
}

dispatch! {
    fn dot<const FMA: bool, T: Float>(a: &[T], b: &[T]) -> f32 {
        lane_sum([a, b], |[a, b]| a * b)
    }
}

/// One query head, with its scratch.
struct Pass<'a, 't, T> {
    s: &'a DenseAttention,
    tiles: &'a mut (dyn Tiles<'t, T> + 't),
    lse: &'a [f32],
    /// Per query, the sum of `dout * out`: what the softmax subtracts from every gradient of a weight.
    shift: &'a [f32],
    weights: &'a mut [f32],
    dscores: &'a mut [f32],
}

impl<T: Float> Pass<'_, '_, T> {
    /// A block of keys against every query that sees it.
    fn block(&mut self, keys: Range<usize>, flops: &AtomicU64) {
        let &DenseAttention { seq, head_dim, scale, causal, .. } = self.s;
        let row = self.tiles.row(keys.len());
        let first_query = if causal { keys.start } else { 0 };
        for first in (first_query..seq).step_by(QUERIES) {
            let queries = first..seq.min(first + QUERIES);
            let weights = &mut self.weights[..queries.len() * row];
            let dscores = &mut self.dscores[..queries.len() * row];
            self.tiles.products(queries.clone(), keys.clone(), weights, dscores);
            let (lse, shift) = (&self.lse[queries.clone()], &self.shift[queries.clone()]);
            // The first rows of the first chunk do not see the whole block.
            let visible = if causal { first + 1 - keys.start } else { keys.len() };
            soften_backward(weights, dscores, row, keys.len(), visible, scale, lse, shift);
            flops.fetch_add(10 * (queries.len() * keys.len() * head_dim) as u64, Ordering::Relaxed);
            self.tiles.add(queries, keys.clone(), weights, dscores);
        }
    }
}

dispatch! {
    /// `weights`: scores become weights. `dscores`: gradients of weights become gradients of unscaled scores.
    ///
    /// Row `i` sees `visible + i` of the `keys` keys, or all of them if there are fewer.
    fn soften_backward<const FMA: bool>(
        weights: &mut [f32],
        dscores: &mut [f32],
        row_len: usize,
        keys: usize,
        visible: usize,
        scale: f32,
        lse: &[f32],
        shift: &[f32],
    ) {
        let rows = weights.chunks_exact_mut(row_len).zip(dscores.chunks_exact_mut(row_len));
        for (row, (weights, dscores)) in rows.enumerate() {
            let visible = keys.min(visible + row);
            let (lse, shift) = (lse[row], shift[row]);
            // A whole row is much faster than a part: hidden scores are worked on too, and give exact zeros.
            weights[visible..].fill(f32::NEG_INFINITY);
            dscores[visible..].fill(0.0);
            for (weight, dscore) in weights.iter_mut().zip(dscores) {
                *weight = exp::<FMA>(fma::<FMA>(*weight, scale, -lse));
                *dscore = *weight * (*dscore - shift) * scale;
            }
        }
    }
}
