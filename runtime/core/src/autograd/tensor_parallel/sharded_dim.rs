//! Collectives along one dim of a tensor that the ranks of an axis shard.

use std::sync::Arc;

use crate::context::{Rank, alloc_like, fail};
use crate::layout::{AxisId, AxisSet};
use meshwright_backend::{BlockCopy, Buffer};
use meshwright_comm::{Blocks, PendingCall, Site};
use meshwright_mesh::__internal::local_len;
use meshwright_mesh::Extent;

/// A dim of a tensor, before or after a collective. The ranks of an axis hold consecutive shards of their common part
/// of the dim.
#[derive(Clone)]
pub(crate) struct ShardedDim {
    axis: AxisSet,
    /// Local extents with the dim whole, and with the dim sharded.
    pub(crate) whole: Vec<Extent>,
    pub(crate) split: Vec<Extent>,
    dim: usize,
    blocks: Blocks,
    site: Site,
}

impl ShardedDim {
    pub(crate) fn new(
        rank: &Rank,
        extents: &[Extent],
        axis: AxisId,
        dim: usize,
        site: &Site,
    ) -> ShardedDim {
        let axis = AxisSet::of(axis);
        let parts = rank.degree_of(axis);
        let whole = extents[dim].unsplit();
        let part = |index| whole.split(index, parts);
        let with_dim = |extent: Extent| {
            let mut changed = extents.to_vec();
            changed[dim] = extent;
            changed
        };
        let inner = local_len(&extents[dim + 1..]);
        let lens: Vec<usize> = (0..parts).map(|index| part(index).local * inner).collect();
        let blocks = Blocks::new(local_len(&extents[..dim]), lens);
        ShardedDim {
            axis,
            whole: with_dim(whole),
            split: with_dim(part(rank.position(axis))),
            dim,
            blocks,
            site: site.clone(),
        }
    }

    /// Gathers the whole dim from the shards of all ranks.
    pub(crate) fn all_gather(&self, rank: &Rank, shard: &Buffer) -> Buffer {
        let group = rank.process_group(self.axis);
        let mut whole = alloc_like(shard, local_len(&self.whole));
        group
            .all_gather(&self.site, shard.view(), whole.view_mut(), &self.blocks)
            .unwrap_or_else(|error| fail(error));
        whole
    }

    pub(crate) fn start_reduce_scatter(&self, rank: &Rank, whole: &Arc<Buffer>) -> PendingCall {
        let shard = alloc_like(whole, local_len(&self.split));
        rank.process_group(self.axis).start_reduce_scatter(
            &self.site,
            Arc::clone(whole),
            shard,
            &self.blocks,
        )
    }

    pub(crate) fn start_all_gather(&self, rank: &Rank, shard: &Arc<Buffer>) -> PendingCall {
        let whole = alloc_like(shard, local_len(&self.whole));
        rank.process_group(self.axis).start_all_gather(
            &self.site,
            Arc::clone(shard),
            whole,
            &self.blocks,
        )
    }

    /// Sums over the ranks, and returns this rank's shard of the sum.
    pub(crate) fn reduce_scatter(&self, rank: &Rank, whole: &Buffer) -> Buffer {
        let group = rank.process_group(self.axis);
        let mut shard = alloc_like(whole, local_len(&self.split));
        group
            .reduce_scatter(&self.site, whole.view(), shard.view_mut(), &self.blocks)
            .unwrap_or_else(|error| fail(error));
        shard
    }

    /// Copies this rank's shard out of the whole dim.
    pub(super) fn own_shard(&self, rank: &Rank, whole: &Buffer) -> Buffer {
        let inner = local_len(&self.whole[self.dim + 1..]);
        let len = self.split[self.dim].local * inner;
        let mut shard = alloc_like(whole, local_len(&self.split));
        let blocks = BlockCopy {
            blocks: self.blocks.outer,
            len,
            src_start: self.blocks.start(rank.position(self.axis)),
            src_stride: self.whole[self.dim].local * inner,
            dst_start: 0,
            dst_stride: len,
        };
        rank.backend().copy_blocks(&blocks, whole.view(), shard.view_mut());
        shard
    }
}
