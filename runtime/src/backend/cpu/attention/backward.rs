//! Backward: per block of keys, the queries in chunks; weights are recomputed from `lse` (Dao et al. 2022).

use std::sync::atomic::{AtomicU64, Ordering};

use super::forward::check;
use super::heads::{Head, Shared};
use crate::backend::AttentionShape;
use crate::backend::cpu::gemm::{Matrix, Multiply, OneThread};
use crate::backend::cpu::math::{exp, fma, lane_sum};
use crate::backend::cpu::scratch::with_scratch;
use crate::backend::cpu::simd::dispatch;
use crate::backend::cpu::workers::Workers;

/// Keys per block. Half of the tile on the diagonal is computed in vain.
const KEYS: usize = 64;

/// Queries per chunk: two tiles of scores stay in the second-level cache.
const QUERIES: usize = 512;

#[allow(clippy::too_many_arguments)]
pub fn attention_backward(
    workers: &Workers,
    flops: &AtomicU64,
    s: &AttentionShape,
    q: &[f32],
    k: &[f32],
    v: &[f32],
    out: &[f32],
    lse: &[f32],
    dout: &[f32],
    dq: &mut [f32],
    dk: &mut [f32],
    dv: &mut [f32],
) {
    check(s, q.len(), k.len(), lse.len());
    assert_eq!([v.len(), dk.len(), dv.len()], [k.len(); 3], "attention operands fit {s:?}");
    assert_eq!([out.len(), dout.len(), dq.len()], [q.len(); 3], "attention operands fit {s:?}");
    if q.is_empty() {
        return;
    }
    let &AttentionShape { seq, heads, kv_heads, head_dim, .. } = s;
    let (dq, dk, dv) = (Shared::new(dq), Shared::new(dk), Shared::new(dv));
    let group = heads / kv_heads;
    workers.each(s.batch * kv_heads, |task| {
        let (batch, kv_head) = (task / kv_heads, task % kv_heads);
        let whole = seq * head_dim;
        let tile = KEYS.min(seq) * QUERIES.min(seq);
        with_scratch(6 * whole + 2 * tile + seq, |scratch| {
            let mut rest = scratch;
            let mut take = |len| {
                let (head, tail) = std::mem::take(&mut rest).split_at_mut(len);
                rest = tail;
                head
            };
            let kv_sizes = [seq, kv_heads, head_dim];
            let key = Head::new(k, kv_sizes, batch, kv_head);
            let value = Head::new(v, kv_sizes, batch, kv_head);
            let (keys, keys_t, values_t) = (take(whole), take(whole), take(whole));
            key.gather(0..seq, keys);
            for start in (0..seq).step_by(KEYS) {
                let block = start..seq.min(start + KEYS);
                let at = start * head_dim..block.end * head_dim;
                key.transpose(block.clone(), &mut keys_t[at.clone()]);
                value.transpose(block, &mut values_t[at]);
            }
            let (dkey, dvalue) = (take(whole), take(whole));
            dkey.fill(0.0);
            dvalue.fill(0.0);
            let (dquery, shift) = (take(whole), take(seq));
            let (weights, dscores) = (take(tile), take(tile));

            for head in kv_head * group..(kv_head + 1) * group {
                let q_sizes = [seq, heads, head_dim];
                let dout = Head::new(dout, q_sizes, batch, head);
                let out = Head::new(out, q_sizes, batch, head);
                for (row, shift) in shift.iter_mut().enumerate() {
                    *shift = dot(dout.row(row), out.row(row));
                }
                let mut pass = Pass {
                    s,
                    query: Head::new(q, q_sizes, batch, head),
                    dout,
                    lse: &lse[(batch * heads + head) * seq..][..seq],
                    shift,
                    dquery,
                    weights,
                    dscores,
                };
                for start in (0..seq).step_by(KEYS) {
                    let end = seq.min(start + KEYS);
                    let at = start * head_dim..end * head_dim;
                    pass.block(
                        start,
                        &Block {
                            keys: &keys[at.clone()],
                            keys_t: &keys_t[at.clone()],
                            values_t: &values_t[at.clone()],
                        },
                        &mut dkey[at.clone()],
                        &mut dvalue[at],
                        flops,
                    );
                }
                for (row, dquery) in dquery.chunks_exact(head_dim).enumerate() {
                    let at = ((batch * seq + row) * heads + head) * head_dim;
                    // SAFETY: this sample and query head belong to this task alone.
                    unsafe { dq.piece(at, head_dim) }.copy_from_slice(dquery);
                }
            }
            let rows = dkey.chunks_exact(head_dim).zip(dvalue.chunks_exact(head_dim));
            for (row, (dkey, dvalue)) in rows.enumerate() {
                let at = ((batch * seq + row) * kv_heads + kv_head) * head_dim;
                // SAFETY: this sample and key/value head belong to this task alone.
                unsafe { dk.piece(at, head_dim) }.copy_from_slice(dkey);
                // SAFETY: as above.
                unsafe { dv.piece(at, head_dim) }.copy_from_slice(dvalue);
            }
        });
    });
}

dispatch! {
    fn dot<const FMA: bool>(a: &[f32], b: &[f32]) -> f32 {
        lane_sum([a, b], |[a, b]| a * b)
    }
}

/// A block of keys and values; `keys` is `[n, head_dim]`, the others `[head_dim, n]`.
struct Block<'a> {
    keys: &'a [f32],
    keys_t: &'a [f32],
    values_t: &'a [f32],
}

/// One query head, with its scratch.
struct Pass<'a> {
    s: &'a AttentionShape,
    query: Head<'a>,
    dout: Head<'a>,
    lse: &'a [f32],
    /// Per query, the sum of `dout * out`: what the softmax subtracts from every gradient of a weight.
    shift: &'a [f32],
    dquery: &'a mut [f32],
    weights: &'a mut [f32],
    dscores: &'a mut [f32],
}

impl Pass<'_> {
    /// The keys from `start` on, against every query that sees them.
    fn block(
        &mut self,
        start: usize,
        block: &Block,
        dkey: &mut [f32],
        dvalue: &mut [f32],
        flops: &AtomicU64,
    ) {
        let &AttentionShape { seq, head_dim, scale, causal, .. } = self.s;
        let keys = dkey.len() / head_dim;
        let first_query = if causal { start } else { 0 };
        for first in (first_query..seq).step_by(QUERIES) {
            let rows = QUERIES.min(seq - first);
            let query = Matrix::rows(self.query.rows_from(first), self.query.stride);
            let dout = Matrix::rows(self.dout.rows_from(first), self.dout.stride);
            let weights = &mut self.weights[..rows * keys];
            let dscores = &mut self.dscores[..rows * keys];
            let sizes = [rows, keys, head_dim];
            OneThread.multiply(sizes, query, Matrix::rows(block.keys_t, keys), 0.0, weights);
            OneThread.multiply(sizes, dout, Matrix::rows(block.values_t, keys), 0.0, dscores);
            let queries = first..first + rows;
            let (lse, shift) = (&self.lse[queries.clone()], &self.shift[queries]);
            // The first rows of the first chunk do not see the whole block.
            let visible = if causal { first + 1 - start } else { keys };
            soften_backward(weights, dscores, keys, visible, scale, lse, shift);
            let sizes = [keys, head_dim, rows];
            OneThread.multiply(sizes, Matrix::transposed(weights, keys), dout, 1.0, dvalue);
            OneThread.multiply(sizes, Matrix::transposed(dscores, keys), query, 1.0, dkey);
            let dquery = &mut self.dquery[first * head_dim..][..rows * head_dim];
            let beta = if start == 0 { 0.0 } else { 1.0 };
            let keys_in = Matrix::rows(block.keys, head_dim);
            let sizes = [rows, head_dim, keys];
            OneThread.multiply(sizes, Matrix::rows(dscores, keys), keys_in, beta, dquery);
            flops.fetch_add(10 * (rows * keys * head_dim) as u64, Ordering::Relaxed);
        }
    }
}

dispatch! {
    /// `weights`: scores become weights. `dscores`: gradients of weights become gradients of unscaled scores.
    ///
    /// Row `i` sees `visible + i` keys, or all of them if there are fewer.
    fn soften_backward<const FMA: bool>(
        weights: &mut [f32],
        dscores: &mut [f32],
        keys: usize,
        visible: usize,
        scale: f32,
        lse: &[f32],
        shift: &[f32],
    ) {
        let rows = weights.chunks_exact_mut(keys).zip(dscores.chunks_exact_mut(keys));
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
