//! Attention of the queries of one rank over the keys of one source, block by block.

use std::sync::Arc;

use crate::tensor::{Extent, KeyBlock, Rank, VisibleRows};
use meshwright_backend::ops::attention::{
    AttentionArgs, AttentionBackwardArgs, MergeAttentionArgs,
};
use meshwright_backend::{
    AttentionShape, Backend, Band, Buffer, DType, KeyRanges, SequenceLayout, View, ViewMut,
    WeightDropout,
};

use super::super::inputs::positions_of;
use super::super::score_operands::{ScoreGradients, ScoreOperands};
use super::blocks::{AttentionBlock, consecutive_blocks, visible_blocks};
use super::call::ContextCall;

/// The queries of one rank, or of the heads that it has of the queries of several ranks.
pub(super) struct LocalAttention<'a> {
    rank: &'a Rank,
    /// Sizes, with dense layouts of the queries, and the band of positions in the whole sequence. The layout of keys is
    /// that of each source.
    shape: AttentionShape,
    /// Positions of the queries in the whole sequence.
    queries: Extent,
    /// The positions that each query sees within the band, if samples are padded or hold several documents.
    visible: Option<&'a VisibleRows>,
    scores: ScoreOperands<'a>,
}

/// Keys and values, dense: `[batch, positions, kv_heads, ..]`.
#[derive(Clone, Copy)]
pub(super) struct KeySource<'a> {
    /// Their positions in the whole sequence.
    pub positions: Extent,
    pub k: View<'a>,
    pub v: View<'a>,
}

/// Operands and results of forward that a backward reads, and the gradient of the output.
#[derive(Clone, Copy)]
pub(super) struct OutputGradient<'a> {
    pub q: View<'a>,
    /// Output over all keys.
    pub out: View<'a>,
    /// Log-sum-exp over all keys.
    pub lse: View<'a>,
    pub dout: View<'a>,
}

/// A kernel call: a block, and the visible keys of each query in it if the band does not determine them.
struct BlockCall {
    block: AttentionBlock,
    ranges: Option<[Arc<Buffer>; 2]>,
}

impl BlockCall {
    fn ranges(&self) -> Option<KeyRanges<'_>> {
        let [first, end] = self.ranges.as_ref()?.each_ref();
        let start = self.block.queries.start;
        Some(KeyRanges { first: view_from(first.view(), start), end: view_from(end.view(), start) })
    }
}

impl<'a> LocalAttention<'a> {
    /// Creates the attention of `queries`. Each query sees the positions of its document in the band.
    pub fn new(call: &ContextCall<'a>, queries: Extent) -> LocalAttention<'a> {
        let ContextCall { rank, shape, visible, scores, .. } = *call;
        let shape = AttentionShape { queries: SequenceLayout::dense(queries.local), ..shape };
        LocalAttention { rank, shape, queries, visible, scores }
    }

    /// Elements of the output.
    pub fn out_len(&self) -> usize {
        let AttentionShape { batch, queries, heads, value_dim, .. } = self.shape;
        batch * queries.len * heads * value_dim
    }

    /// Number of log-sum-exps.
    pub fn lse_len(&self) -> usize {
        let AttentionShape { batch, queries, heads, .. } = self.shape;
        batch * queries.len * heads
    }

    /// Computes the attention over a source that has all keys which the queries see. Both results are written.
    pub fn attend_all(&self, q: View, source: &KeySource, mut out: ViewMut, mut lse: ViewMut) {
        for call in self.calls(&source.positions) {
            let results = (out.reborrow(), lse.reborrow());
            // Each query is in one block, since these keys are at consecutive positions.
            self.attend_block(&call, q, source, self.scores.sinks, results);
        }
    }

    /// Computes the attention over a source, and merges it into `merged`.
    pub fn attend(&self, q: View, source: &KeySource, merged: &mut MergedAttention) {
        let calls = self.calls(&source.positions);
        if merged.is_empty {
            merged.is_empty = false;
            let (out, lse) = (merged.out.view_mut(), merged.lse.view_mut());
            if let [call] = &calls[..]
                && call.block.queries == (0..self.queries.local)
            {
                return self.attend_block(call, q, source, self.scores.sinks, (out, lse));
            }
            if self.scores.sinks.is_some() {
                self.attend_sinks(q, source, (out, lse));
            } else {
                merged.clear(self.rank.backend());
            }
        }
        for call in calls {
            let (out, lse) = merged.of_block.get_or_insert_with(|| {
                let scratch = |len| self.rank.alloc_scratch(DType::F32, len);
                (scratch(self.out_len()), scratch(self.lse_len()))
            });
            self.attend_block(&call, q, source, None, (out.view_mut(), lse.view_mut()));
            let shape = self.block_shape(&call.block, &source.positions);
            let (row, start) = (self.out_row(), call.block.queries.start);
            self.rank.backend().merge_attention(
                &shape,
                MergeAttentionArgs {
                    out: view_from(out.view(), start * row),
                    lse: view_from(lse.view(), start),
                    sum: from_mut(merged.out.view_mut(), start * row),
                    sum_lse: from_mut(merged.lse.view_mut(), start),
                },
            );
        }
    }

    /// Adds the gradients that come from the pairs of the queries and a source, or writes them if one call computes all
    /// of them and `accumulate` is false; the gradient of the bias in `dscores` is added or written likewise. Writes
    /// that of the sinks for all keys, and takes it out of `dscores`.
    ///
    /// # Panics
    /// If several calls would write the same gradients: a bug of the caller.
    pub fn backward(
        &self,
        of: &OutputGradient,
        source: &KeySource,
        accumulate: bool,
        [mut dq, mut dk, mut dv]: [ViewMut; 3],
        dscores: &mut ScoreGradients,
    ) {
        let mut calls = self.calls(&source.positions);
        assert!(accumulate || calls.len() == 1, "gradients of several blocks are added");
        let has_all_queries = |call: &BlockCall| call.block.queries == (0..self.queries.local);
        if dscores.sinks.is_some() && !matches!(&calls[..], [call] if has_all_queries(call)) {
            calls.insert(0, self.call_without_keys());
        }
        for call in calls {
            let AttentionBlock { queries, keys, .. } = &call.block;
            let (q_at, out_at) = (queries.start * self.q_row(), queries.start * self.out_row());
            let (k_at, v_at) = (keys.start * self.k_row(), keys.start * self.v_row());
            // The first call, which has all queries, adds the gradients of sinks.
            let dsinks = dscores.sinks.take();
            let dbias = dscores.bias.as_mut().filter(|_| !keys.is_empty());
            self.rank.backend().attention_backward(
                &self.block_shape(&call.block, &source.positions),
                AttentionBackwardArgs {
                    q: view_from(of.q, q_at),
                    k: view_from(source.k, k_at),
                    v: view_from(source.v, v_at),
                    ranges: call.ranges(),
                    bias: self.scores.bias,
                    sinks: self.scores.sinks.filter(|_| dsinks.is_some()),
                    out: view_from(of.out, out_at),
                    lse: view_from(of.lse, queries.start),
                    dout: view_from(of.dout, out_at),
                    accumulate,
                    dq: from_mut(dq.reborrow(), q_at),
                    dk: from_mut(dk.reborrow(), k_at),
                    dv: from_mut(dv.reborrow(), v_at),
                    dbias: dbias.map(ViewMut::reborrow),
                    dsinks,
                },
            );
        }
    }

    /// Computes the attention of all queries over their sinks alone.
    fn attend_sinks(&self, q: View, source: &KeySource, results: (ViewMut, ViewMut)) {
        self.attend_block(&self.call_without_keys(), q, source, self.scores.sinks, results);
    }

    fn call_without_keys(&self) -> BlockCall {
        let block = AttentionBlock { queries: 0..self.queries.local, keys: 0..0, band: Band::ALL };
        BlockCall { block, ranges: None }
    }

    fn attend_block(
        &self,
        call: &BlockCall,
        q: View,
        source: &KeySource,
        sinks: Option<View>,
        (out, lse): (ViewMut, ViewMut),
    ) {
        let AttentionBlock { queries, keys, .. } = &call.block;
        self.rank.backend().attention(
            &self.block_shape(&call.block, &source.positions),
            AttentionArgs {
                q: view_from(q, queries.start * self.q_row()),
                k: view_from(source.k, keys.start * self.k_row()),
                v: view_from(source.v, keys.start * self.v_row()),
                ranges: call.ranges(),
                bias: self.scores.bias,
                sinks,
                out: from_mut(out, queries.start * self.out_row()),
                lse: from_mut(lse, queries.start),
            },
        );
    }

    /// Returns the calls that compute all visible pairs of the queries and keys at `keys`. They do not depend on
    /// documents, so a CUDA graph can replay them; the ranges of queries that see none of the keys are empty.
    fn calls(&self, keys: &Extent) -> Vec<BlockCall> {
        let band = self.shape.band;
        let blocks = match (&self.scores.bias, self.visible) {
            (None, None) => visible_blocks(&self.queries, keys, band),
            (None, Some(_)) => vec![AttentionBlock::all(&self.queries, keys)],
            (Some(_), _) => consecutive_blocks(&self.queries, keys, band),
        };
        let call = |block: AttentionBlock| {
            let ranges = self.visible.map(|visible| {
                let (queries, part) = (self.queries, block.keys.clone());
                visible.key_ranges(self.rank, KeyBlock { queries, keys: *keys, band, part })
            });
            BlockCall { block, ranges }
        };
        blocks.into_iter().map(call).collect()
    }

    fn block_shape(&self, block: &AttentionBlock, keys: &Extent) -> AttentionShape {
        let dropout = self.shape.dropout.map(|dropout| WeightDropout {
            queries: positions_of(&self.queries).from_index(block.queries.start),
            keys: positions_of(keys).from_index(block.keys.start),
            ..dropout
        });
        AttentionShape {
            queries: SequenceLayout { len: block.queries.len(), pitch: self.queries.local },
            keys: SequenceLayout { len: block.keys.len(), pitch: keys.local },
            band: block.band,
            dropout,
            ..self.shape
        }
    }

    /// Elements of the queries, keys, values and output of one position.
    fn q_row(&self) -> usize {
        self.shape.heads * self.shape.head_dim
    }

    fn k_row(&self) -> usize {
        self.shape.kv_heads * self.shape.head_dim
    }

    fn v_row(&self) -> usize {
        self.shape.kv_heads * self.shape.value_dim
    }

    fn out_row(&self) -> usize {
        self.shape.heads * self.shape.value_dim
    }
}

/// Attention over the keys of several sources, in f32.
pub(super) struct MergedAttention {
    out: Buffer,
    lse: Buffer,
    /// True until the first source is merged; the contents are unspecified until then.
    is_empty: bool,
    /// Results of one block, before they are merged.
    of_block: Option<(Buffer, Buffer)>,
}

impl MergedAttention {
    /// Creates the attention of `local`'s queries over no keys.
    pub fn new(local: &LocalAttention<'_>) -> MergedAttention {
        let [out, lse] =
            [local.out_len(), local.lse_len()].map(|len| local.rank.alloc_statistics(len));
        MergedAttention { out, lse, is_empty: true, of_block: None }
    }

    /// Returns the output and the log-sum-exp.
    pub fn into_results(self) -> (Buffer, Buffer) {
        (self.out, self.lse)
    }

    fn clear(&mut self, backend: &dyn Backend) {
        backend.fill(self.out.view_mut(), 0.0);
        backend.fill(self.lse.view_mut(), f32::NEG_INFINITY);
    }
}

/// Returns the elements from index `start` on, which is in the first sample; none on a rank without samples.
fn view_from(view: View<'_>, start: usize) -> View<'_> {
    let len = view.len();
    if len == 0 { view } else { view.slice(start..len) }
}

/// [`view_from`] of elements to write.
fn from_mut(view: ViewMut<'_>, start: usize) -> ViewMut<'_> {
    let len = view.len();
    if len == 0 { view } else { view.into_slice(start..len) }
}
