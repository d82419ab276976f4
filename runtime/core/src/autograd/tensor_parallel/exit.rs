//! Exit of a matmul from a tensor-parallel region (Megatron's g operator, fused into the matmul's node).

use std::sync::Arc;

use crate::context::Rank;
use crate::layout::{AxisId, AxisSet};
use meshwright_backend::Buffer;
use meshwright_comm::{ReduceOp, Site};
use meshwright_mesh::Extent;

use super::sharded_dim::ShardedDim;

/// Exit of a matmul's result from its tensor-parallel region.
pub(crate) enum RegionExit {
    /// The result stays inside of the region.
    Stay,
    /// All-reduce forward, identity backward.
    AllReduce(AxisSet),
    /// Reduce-scatter forward, all-gather backward.
    ReduceScatter(ShardedDim),
}

impl RegionExit {
    /// Creates the exit of a result with local extents `extents` over the axis of `leaves`, sharding a dim of the sum
    /// if one is given.
    pub(crate) fn new(
        rank: &Rank,
        extents: &[Extent],
        leaves: Option<(AxisId, Option<usize>)>,
        site: &Site,
    ) -> RegionExit {
        match leaves {
            None => RegionExit::Stay,
            Some((axis, _)) if rank.degree(axis) == 1 => RegionExit::Stay,
            Some((axis, None)) => RegionExit::AllReduce(AxisSet::of(axis)),
            Some((axis, Some(dim))) => {
                RegionExit::ReduceScatter(ShardedDim::new(rank, extents, axis, dim, site))
            }
        }
    }

    pub(crate) fn is_stay(&self) -> bool {
        matches!(self, RegionExit::Stay)
    }

    /// Returns the local extents after the exit.
    pub(crate) fn extents(&self, inside: Vec<Extent>) -> Vec<Extent> {
        match self {
            RegionExit::Stay | RegionExit::AllReduce(_) => inside,
            RegionExit::ReduceScatter(dim) => dim.split.clone(),
        }
    }

    pub(crate) fn forward(&self, rank: &Rank, mut partial: Buffer, site: &Site) -> Buffer {
        match self {
            RegionExit::Stay => partial,
            RegionExit::AllReduce(axes) => {
                rank.all_reduce(*axes, site, ReduceOp::Sum, partial.view_mut());
                partial
            }
            RegionExit::ReduceScatter(dim) => dim.reduce_scatter(rank, &partial),
        }
    }

    pub(crate) fn backward(&self, rank: &Rank, dy: Arc<Buffer>) -> Arc<Buffer> {
        match self {
            RegionExit::Stay | RegionExit::AllReduce(_) => dy,
            RegionExit::ReduceScatter(dim) => Arc::new(dim.all_gather(rank, &dy)),
        }
    }
}
