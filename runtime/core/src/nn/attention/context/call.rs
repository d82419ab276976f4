//! One call of context-parallel attention: its ranks, sizes and documents, and buffers of these sizes.

use crate::tensor::{Rank, VisibleRows, fail};
use meshwright_backend::{AttentionShape, Buffer, DType, View, ViewMut};
use meshwright_comm::{CommError, Communicator, PendingCall, Site};

use super::super::score_operands::ScoreOperands;

/// A call of attention over a sequence that is distributed over a process group in zig-zag order.
#[derive(Clone, Copy)]
pub(super) struct ContextCall<'a> {
    pub rank: &'a Rank,
    /// The ranks that share the sequence.
    pub group: &'a Communicator,
    pub site: &'a Site,
    /// Sizes of this rank's operands, which are dense, and the band of positions in the whole sequence.
    pub shape: AttentionShape,
    /// Positions of the whole sequence.
    pub seq: usize,
    /// The positions that each query sees within the band, if samples are padded or hold several documents.
    pub visible: Option<&'a VisibleRows>,
    /// The optional operands of the scores of this rank's query heads.
    pub scores: ScoreOperands<'a>,
}

impl ContextCall<'_> {
    /// Elements of the keys of one source.
    pub fn k_len(&self) -> usize {
        let AttentionShape { batch, keys, kv_heads, head_dim, .. } = self.shape;
        batch * keys.len * kv_heads * head_dim
    }

    /// Concatenates keys and values in one buffer, as ranks send them.
    pub fn concatenate(&self, k: View, v: View) -> Buffer {
        let mut kv = self.rank.alloc_scratch(k.dtype(), k.len() + v.len());
        let [first, second] = split_at(kv.view_mut(), k.len());
        self.rank.backend().cast(k, first);
        self.rank.backend().cast(v, second);
        kv
    }

    /// Returns the keys and the values of one source.
    pub fn keys_and_values<'k>(&self, kv: &'k Buffer) -> [View<'k>; 2] {
        let kv = kv.view();
        [kv.slice(0..self.k_len()), kv.slice(self.k_len()..kv.len())]
    }

    /// Allocates zeros, to accumulate a gradient in.
    pub fn zeros(&self, dtype: DType, len: usize) -> Buffer {
        let mut zeros = self.rank.alloc_scratch(dtype, len);
        self.rank.backend().fill(zeros.view_mut(), 0.0);
        zeros
    }

    /// Returns `wide`, which is f32, in the compute dtype.
    pub fn narrow(&self, wide: View) -> Buffer {
        let mut narrow = self.rank.alloc_activation(wide.len());
        self.rank.backend().cast(wide, narrow.view_mut());
        narrow
    }

    /// Waits for a collective. A failure unwinds the rank.
    pub fn wait_for_buffer(&self, pending: PendingCall) -> Buffer {
        pending.wait().unwrap_or_else(|error: CommError| fail(error))
    }
}

/// Returns the first `len` elements and the others.
pub(super) fn split_at(view: ViewMut<'_>, len: usize) -> [ViewMut<'_>; 2] {
    let end = view.len();
    view.into_disjoint([0..len, len..end])
}
