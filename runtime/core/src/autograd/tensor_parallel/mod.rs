//! Tensor parallelism: Megatron's f and g operators, which enter and leave a tensor-parallel region, and the
//! collectives along a sharded dim (sequence parallelism).

mod exit;
mod operators;
mod regather;
mod sharded_dim;

pub(crate) use exit::RegionExit;
pub(crate) use operators::{
    all_reduce, enter_region, enter_regions, gather_dim, leave_region, record_gathered,
    record_shard, reduce_scatter, slice_dim,
};
pub(crate) use regather::Regather;
pub(crate) use sharded_dim::ShardedDim;
