//! Backward: per block of keys, the queries in chunks; weights are recomputed from `lse` (Dao et al. 2022).
//!
//! There is one task per key/value head of a sample ([`by_heads`]), or if threads would have nothing to do, one per
//! block of keys ([`by_blocks`]). Both compute the same tiles and add them up in the same order, so results are equal
//! to the bit.

mod by_blocks;
mod by_heads;
mod pass;
mod query_sums;
mod turns;

use std::ops::Range;
use std::sync::atomic::AtomicU64;

use super::ScratchParts;
use super::backward_tiles::{BackwardTiles, KEYS};
#[cfg(target_arch = "x86_64")]
use super::dots;
use super::dropout::WeightFactors;
use super::head_sums::HeadSums;
use super::heads::{Head, Heads};
use super::mask::{Mask, VisibleKeys};
use super::results::{InterleavedOutput, Results};
use super::scoring::{KeyDistances, Scoring};
use super::shift::{Outputs, SinkGradient};
use super::sizes::{TaskSizes, check_heads, check_lse, check_rows, check_shape};
use super::widened;
use crate::float::Float;
use crate::scratch::with_scratch;
use crate::workers::Workers;
use meshwright_backend::AttentionShape;
use meshwright_backend::ops::attention::AttentionBackwardArgs;

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
        let distances = KeyDistances::new(s, bias);
        (distances, HeadSums::new(s, distances.count, dbias, accumulate))
    });
    let mut dsinks = dsinks.map(|dsinks| {
        let sinks: &[f32] = sinks.expect("sinks that have a gradient").typed();
        check_heads(s, 1, sinks.len());
        (sinks, HeadSums::new(s, 1, dsinks, false))
    });
    let outs = Outputs::new(out, s.queries, out_sizes);
    let douts = Heads::new(dout, s.queries, out_sizes);
    let sink_gradient =
        dsinks.as_mut().map(|(sinks, sums)| SinkGradient { sinks, parts: sums.shared_sums() });
    let shifts = row_shifts(workers, s, &outs, &douts, lse, sink_gradient);
    let call = BackwardCall {
        s,
        queries: Heads::new(q, s.queries, q_sizes),
        keys: Heads::new(k, s.keys, k_sizes),
        values: Heads::new(v, s.keys, v_sizes),
        douts,
        lse,
        shifts: &shifts,
        mask: Mask::new(s, ranges),
        scoring: Scoring::new(s, bias),
        dropout: WeightFactors::new(s),
        dq: Results::new(dq, s.queries, q_sizes, accumulate),
        no_gradient: vec![0.0; s.head_dim],
        dk: Results::new(dk, s.keys, k_sizes, accumulate),
        dv: Results::new(dv, s.keys, v_sizes, accumulate),
        dbias: dbias.as_mut().map(|(distances, sums)| (*distances, sums.shared_sums())),
        flops,
    };
    // Blocks of keys would add to the same gradient of a bias.
    if s.batch * s.kv_heads < workers.threads() && call.dbias.is_none() {
        by_blocks::run_by_blocks(workers, &call);
    } else {
        by_heads::run_by_heads(workers, &call);
    }
    drop(call);
    let sums = dbias.map(|(_, sums)| sums).into_iter().chain(dsinks.map(|(_, sums)| sums));
    sums.for_each(HeadSums::finish_sums);
}

/// Returns the sum of `dout * out` of each query, `[batch, heads, queries]`, and sums the gradients of sinks.
fn row_shifts<T: Float>(
    workers: &Workers,
    s: &AttentionShape,
    outs: &Outputs<T>,
    douts: &Heads<T>,
    lse: &[f32],
    sinks: Option<SinkGradient>,
) -> Vec<f32> {
    let len = s.queries.len;
    let mut all = vec![0.0; s.batch * s.heads * len];
    let shared = InterleavedOutput::new(&mut all);
    workers.for_each_task(s.batch * s.heads, |task| {
        let at @ [sample, head] = [task / s.heads, task % s.heads];
        // SAFETY: this sample and head belong to this task alone.
        let shifts = unsafe { shared.piece(task * len, len) };
        with_scratch(s.value_dim, |wide| {
            outs.row_shifts(at, douts.head(sample, head), wide, shifts)
        });
        if let Some(sinks) = &sinks {
            sinks.sum(at, &lse[task * s.queries.pitch..][..len], shifts);
        }
    });
    all
}

fn tiles_of<'a, T: Float>(
    sizes: TaskSizes,
    key: Head<'a, T>,
    value: Head<'a, T>,
    scratch: &mut ScratchParts<'a>,
) -> Box<dyn BackwardTiles<'a, T> + 'a> {
    #[cfg(target_arch = "x86_64")]
    if sizes.by_dots::<T>() {
        return Box::new(dots::DotsBackward::new(sizes, key, value, scratch));
    }
    Box::new(widened::WidenedBackward::new(sizes, key, value, scratch))
}

/// Returns the scratch elements of the tiles of a task.
fn tiles_scratch_len<T: Float>(sizes: TaskSizes) -> usize {
    #[cfg(target_arch = "x86_64")]
    if sizes.by_dots::<T>() {
        return dots::DotsBackward::scratch_len(sizes);
    }
    widened::WidenedBackward::scratch_len(sizes)
}

/// Returns the elements of the gradient of one query, as tiles add it up.
fn dquery_len<T: Float>(sizes: TaskSizes) -> usize {
    #[cfg(target_arch = "x86_64")]
    if sizes.by_dots::<T>() {
        return dots::DotsBackward::dquery_len(sizes);
    }
    sizes.head_dim
}

/// The operands of a call.
struct BackwardCall<'a, T> {
    s: &'a AttentionShape,
    queries: Heads<'a, T>,
    keys: Heads<'a, T>,
    values: Heads<'a, T>,
    douts: Heads<'a, T>,
    lse: &'a [f32],
    /// Per query, `[batch, heads, queries]`, the sum of `dout * out`, which the softmax subtracts from every gradient
    /// of a weight.
    shifts: &'a [f32],
    mask: Mask,
    scoring: Scoring<'a>,
    dropout: Option<WeightFactors>,
    dq: Results<'a, T>,
    /// The gradient of a query that sees no key.
    no_gradient: Vec<f32>,
    dk: Results<'a, T>,
    dv: Results<'a, T>,
    dbias: Option<(KeyDistances, InterleavedOutput<'a, f64>)>,
    flops: &'a AtomicU64,
}

impl<'a, T: Float> BackwardCall<'a, T> {
    /// Returns the sizes of a task over some queries and keys.
    fn task_sizes(&self, queries: usize, keys: usize) -> TaskSizes {
        let &AttentionShape { head_dim, value_dim, .. } = self.s;
        TaskSizes { queries, keys, head_dim, value_dim }
    }

    /// Returns some keys of a key/value head, and their values.
    fn keys_of(
        &self,
        [sample, kv_head]: [usize; 2],
        keys: &Range<usize>,
    ) -> (Head<'a, T>, Head<'a, T>) {
        let rows = |heads: &Heads<'a, T>| heads.head(sample, kv_head).rows(keys.clone());
        (rows(&self.keys), rows(&self.values))
    }

    /// Returns some queries of a head, and the gradients of their outputs.
    fn queries_of(
        &self,
        [sample, head]: [usize; 2],
        queries: &Range<usize>,
    ) -> (Head<'a, T>, Head<'a, T>) {
        let rows = |heads: &Heads<'a, T>| heads.head(sample, head).rows(queries.clone());
        (rows(&self.queries), rows(&self.douts))
    }

    /// Writes the gradient of one query from the first elements of its sum; `None` is zero.
    ///
    /// # Safety
    /// No other thread writes this gradient at the same time.
    unsafe fn put_query(&self, at: [usize; 3], sum: Option<&[f32]>) {
        let gradient = sum.map_or(&self.no_gradient[..], |sum| &sum[..self.s.head_dim]);
        // SAFETY: as the caller promises.
        unsafe { self.dq.put_row(at, gradient, 1.0) };
    }

    /// Writes the gradients of some keys and values from the tiles that hold them.
    fn put_keys(
        &self,
        [sample, kv_head]: [usize; 2],
        keys: Range<usize>,
        tiles: &mut (dyn BackwardTiles<'_, T> + '_),
    ) {
        tiles.finish_keys();
        let kept = self.dropout.as_ref().map_or(1.0, |dropout| dropout.kept);
        for (row, key) in keys.enumerate() {
            let at = [sample, key, kv_head];
            // SAFETY: these keys of this sample and key/value head belong to one task alone.
            unsafe { self.dk.put_row(at, tiles.key_gradient(row), 1.0) };
            // SAFETY: as above.
            unsafe { self.dv.put_row(at, tiles.value_gradient(row), kept) };
        }
    }
}

/// Returns the queries that see some keys, from an even one on.
fn queries_that_see(visible: VisibleKeys, keys: Range<usize>) -> Range<usize> {
    let queries = visible.queries(keys);
    queries.start / 2 * 2..queries.end
}

/// Returns keys in blocks.
fn key_blocks(keys: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    keys.clone().step_by(KEYS).map(move |start| start..keys.end.min(start + KEYS))
}
