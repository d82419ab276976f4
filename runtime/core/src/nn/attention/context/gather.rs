//! Context parallelism by gathered keys: each rank keeps its queries, and gathers the keys and values of all ranks
//! (Dubey et al. 2024, "The Llama 3 Herd of Models", section 3.3.2).

use crate::tensor::{Extent, fail};
use meshwright_backend::{BlockCopy, Buffer, DType, View};
use meshwright_comm::Blocks;

use super::super::score_operands::ScoreGradients;
use super::call::{ContextCall, split_at};
use super::local::{KeySource, LocalAttention, OutputGradient};
use super::order::ZigZagPart;

/// One rank of a process group that gathers keys and values.
pub(super) struct KeyGather<'a> {
    call: &'a ContextCall<'a>,
    local: LocalAttention<'a>,
}

impl<'a> KeyGather<'a> {
    /// Creates one rank's side of a gather.
    pub fn new(call: &'a ContextCall<'a>) -> KeyGather<'a> {
        let queries = Extent::zig_zag(call.seq, call.group.rank(), call.group.size());
        let local = LocalAttention::new(call, queries);
        KeyGather { call, local }
    }

    /// Computes the output, in the compute dtype, and the log-sum-exp.
    pub fn forward(&self, q: View, k: View, v: View) -> (Buffer, Buffer) {
        let rank = self.call.rank;
        let kv = self.gather_keys(k, v);
        let mut out = rank.alloc_activation(self.local.out_len());
        let mut lse = rank.alloc_statistics(self.local.lse_len());
        self.local.attend_all(q, &self.key_source(&kv), out.view_mut(), lse.view_mut());
        (out, lse)
    }

    /// Computes the gradients of queries, keys and values, in the compute dtype. Keys and values are gathered again, so
    /// that only one rank's are kept from forward to backward. The gradients of the scores' operands are added to
    /// `dscores`.
    pub fn backward(
        &self,
        of: &OutputGradient,
        k: View,
        v: View,
        mut dscores: ScoreGradients,
    ) -> [Buffer; 3] {
        let kv = self.gather_keys(k, v);
        let mut dq = self.call.zeros(DType::F32, of.q.len());
        let mut dkv = self.call.zeros(DType::F32, kv.len());
        let [dk, dv] = split_at(dkv.view_mut(), self.whole_k_len());
        let gradients = [dq.view_mut(), dk, dv];
        self.local.backward(of, &self.key_source(&kv), true, gradients, &mut dscores);
        drop(kv);
        let own = self.reduce_scatter(dkv);
        let [dk, dv] = self.call.keys_and_values(&own);
        [dq.view(), dk, dv].map(|gradient| self.call.narrow(gradient))
    }

    /// Gathers the keys and values of all ranks, in the order of positions: all keys, then all values.
    fn gather_keys(&self, k: View, v: View) -> Buffer {
        let ContextCall { rank, group, site, .. } = *self.call;
        let own = self.call.concatenate(k, v);
        let mut by_rank = rank.alloc_scratch(own.dtype(), own.len() * group.size());
        let blocks = Blocks::even(1, own.len(), group.size());
        group
            .all_gather(site, own.view(), by_rank.view_mut(), &blocks)
            .unwrap_or_else(|error| fail(error));
        let dtype = own.dtype();
        drop(own);
        let mut ordered = rank.alloc_scratch(dtype, by_rank.len());
        for copy in self.copies_to_order() {
            rank.backend().copy_blocks(&copy, by_rank.view(), ordered.view_mut());
        }
        ordered
    }

    /// Sums the gradients of all keys and values over ranks, and returns the gradients of this rank's keys and values.
    fn reduce_scatter(&self, ordered: Buffer) -> Buffer {
        let ContextCall { rank, group, site, .. } = *self.call;
        let mut by_rank = rank.alloc_scratch(DType::F32, ordered.len());
        for copy in self.copies_to_order() {
            rank.backend().copy_blocks(&copy.reversed(), ordered.view(), by_rank.view_mut());
        }
        drop(ordered);
        let len = by_rank.len() / group.size();
        let mut own = rank.alloc_scratch(DType::F32, len);
        let blocks = Blocks::even(1, len, group.size());
        group
            .reduce_scatter(site, by_rank.view(), own.view_mut(), &blocks)
            .unwrap_or_else(|error| fail(error));
        own
    }

    /// Returns the copies from the order of ranks, each with its keys and its values, to that of positions.
    fn copies_to_order(&self) -> impl Iterator<Item = BlockCopy> {
        let shape = self.call.shape;
        let members = self.call.group.size();
        let part = move |member: usize, dim: usize| ZigZagPart {
            batch: shape.batch,
            chunk: shape.keys.len / 2,
            row: shape.kv_heads * dim,
            members,
            member,
        };
        (0..members).flat_map(move |member| {
            let [k, v] = [shape.head_dim, shape.value_dim].map(|dim| part(member, dim));
            let start = member * (k.len() + v.len());
            let values_start = members * k.len();
            k.to_whole(start, 0).into_iter().chain(v.to_whole(start + k.len(), values_start))
        })
    }

    fn key_source<'k>(&self, kv: &'k Buffer) -> KeySource<'k> {
        let (kv, values_start) = (kv.view(), self.whole_k_len());
        KeySource {
            positions: Extent::whole(self.call.seq),
            k: kv.slice(0..values_start),
            v: kv.slice(values_start..kv.len()),
        }
    }

    fn whole_k_len(&self) -> usize {
        self.call.k_len() * self.call.group.size()
    }
}
