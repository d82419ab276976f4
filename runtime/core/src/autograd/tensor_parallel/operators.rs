//! Megatron's f and g operators: values enter and leave tensor-parallel regions, in which the ranks of an axis do
//! different work. Each pairs a collective of forward with one of backward.

use std::rc::Rc;
use std::sync::Arc;

use crate::context::{Rank, StageReaders};
use crate::layout::{AxisId, AxisSet, Entry};
use meshwright_backend::Buffer;
use meshwright_comm::{ReduceOp, Site};

use super::super::activation_checkpointing::CheckpointedSegment;
use super::super::tape::{Dependencies, NodeId};
use super::super::value::Value;
use super::regather::Regather;
use super::sharded_dim::ShardedDim;

/// Returns the value inside of a region (the f operator). It is made once per value and axis, so that all the layers
/// that read it share one all-gather, and its gradients are summed before they are reduced.
pub(crate) fn enter_region(x: &Value, entry: Entry, site: &Site) -> Value {
    match entry {
        Entry::Copy(axis) if x.rank().degree(axis) > 1 => {
            x.entered(axis, || copy_to_region(x, axis, site))
        }
        Entry::Gather(axis, dim) if x.rank().degree(axis) > 1 => {
            x.entered(axis, || gather_to_region(x, axis, dim, site))
        }
        Entry::Stay | Entry::Copy(_) | Entry::Gather(..) => x.clone(),
    }
}

/// Returns the value inside of the regions of all `axes`: unchanged forward, and its gradient is all-reduced over each
/// of them. An operation whose work is distributed over an axis enters its operands that do not vary over it.
pub(crate) fn enter_regions(x: &Value, axes: AxisSet, site: &Site) -> Value {
    axes.iter().fold(x.clone(), |x, axis| enter_region(&x, Entry::Copy(axis), site))
}

/// Identity forward, all-reduce backward. Later pipeline stages to which `x` is passed on share the result.
fn copy_to_region(x: &Value, axis: AxisId, site: &Site) -> Value {
    if let Some(params) = x.params_in_region(axis) {
        return params;
    }
    let ready = x.compute();
    let node = ready.node.map(|source| {
        let site = site.clone();
        let dependencies = Dependencies::on([&source]);
        x.rank().tape().record_for(StageReaders::all(), dependencies, move |gradients, gradient| {
            let mut gradient = gradients.unshared_gradient(gradient);
            let axes = AxisSet::of(axis);
            gradients.rank.all_reduce(axes, &site, ReduceOp::Sum, gradient.view_mut());
            gradients.add_gradient(&source, Arc::new(gradient));
        })
    });
    Value::ready(x.rank(), x.extents().to_vec(), ready.data, node, x.segment_of_result())
}

/// All-gather of a sharded dim forward, reduce-scatter backward; readers save the shard.
fn gather_to_region(x: &Value, axis: AxisId, dim: usize, site: &Site) -> Value {
    let rank = x.rank();
    let dim = ShardedDim::new(rank, x.extents(), axis, dim, site);
    let ready = x.compute();
    let node = ready.node.map(|source| {
        let dim = dim.clone();
        let dependencies = Dependencies::on([&source]);
        rank.tape().record_for(StageReaders::all(), dependencies, move |gradients, gradient| {
            gradients
                .add_gradient(&source, Arc::new(dim.reduce_scatter(gradients.rank, &gradient)));
        })
    });
    let data = dim.all_gather(rank, &ready.data);
    let extents = dim.whole.clone();
    let regather = Rc::new(Regather::new(ready.data, dim));
    Value::gathered(rank, extents, data, node, regather, x.segment_of_result())
}

/// Leaves a region (the g operator): with the sum on every rank, or with dim `scatter` of the sum sharded over the
/// axis.
pub(crate) fn leave_region(
    partial: Value,
    axis: AxisId,
    scatter: Option<usize>,
    site: &Site,
) -> Value {
    match scatter {
        None => all_reduce(partial, AxisSet::of(axis), site),
        Some(dim) => reduce_scatter(&partial, axis, dim, site),
    }
}

/// Partial to whole: all-reduce forward, identity backward.
pub(crate) fn all_reduce(partial: Value, axes: AxisSet, site: &Site) -> Value {
    let rank = partial.rank().clone();
    let (extents, segment) = (partial.extents().to_vec(), partial.segment_of_result());
    let (mut data, node) = partial.into_unique();
    rank.all_reduce(axes, site, ReduceOp::Sum, data.view_mut());
    Value::ready(&rank, extents, data, node, segment)
}

/// Partial to split: reduce-scatter forward, all-gather backward.
pub(crate) fn reduce_scatter(partial: &Value, axis: AxisId, dim: usize, site: &Site) -> Value {
    let rank = partial.rank();
    if rank.degree(axis) == 1 {
        return partial.unchanged_computed();
    }
    let dim = ShardedDim::new(rank, partial.extents(), axis, dim, site);
    let ready = partial.compute();
    let data = dim.reduce_scatter(rank, &ready.data);
    record_shard(rank, dim, data, ready.node, partial.segment_of_result())
}

/// Whole to split: own shard forward, all-gather backward.
pub(crate) fn slice_dim(x: &Value, axis: AxisId, dim: usize, site: &Site) -> Value {
    let rank = x.rank();
    if rank.degree(axis) == 1 {
        return x.unchanged_computed();
    }
    let dim = ShardedDim::new(rank, x.extents(), axis, dim, site);
    let ready = x.compute();
    let data = dim.own_shard(rank, &ready.data);
    record_shard(rank, dim, data, ready.node, x.segment_of_result())
}

/// Split to whole: all-gather forward, own shard backward.
pub(crate) fn gather_dim(x: &Value, axis: AxisId, dim: usize, site: &Site) -> Value {
    let rank = x.rank();
    if rank.degree(axis) == 1 {
        return x.unchanged_computed();
    }
    let dim = ShardedDim::new(rank, x.extents(), axis, dim, site);
    let ready = x.compute();
    let data = dim.all_gather(rank, &ready.data);
    record_gathered(rank, dim, data, ready.node, x.segment_of_result())
}

/// Records a shard `data` of the result of `source`, computed in the forward of `segment`: all-gather backward.
pub(crate) fn record_shard(
    rank: &Rank,
    dim: ShardedDim,
    data: Buffer,
    source: Option<NodeId>,
    segment: Option<Rc<CheckpointedSegment>>,
) -> Value {
    let extents = dim.split.clone();
    let node = source.map(|source| {
        rank.tape().record(Dependencies::on([&source]), move |gradients, gradient| {
            gradients.add_gradient(&source, Arc::new(dim.all_gather(gradients.rank, &gradient)));
        })
    });
    Value::ready(rank, extents, data, node, segment)
}

/// Records `data` gathered from the shards that `source` has computed, in the forward of `segment`: own shard backward.
pub(crate) fn record_gathered(
    rank: &Rank,
    dim: ShardedDim,
    data: Buffer,
    source: Option<NodeId>,
    segment: Option<Rc<CheckpointedSegment>>,
) -> Value {
    let extents = dim.whole.clone();
    let node = source.map(|source| {
        rank.tape().record(Dependencies::on([&source]), move |gradients, gradient| {
            gradients.add_gradient(&source, Arc::new(dim.own_shard(gradients.rank, &gradient)));
        })
    });
    Value::ready(rank, extents, data, node, segment)
}
