//! Entering and leaving regions in which the ranks of an axis do different work: the forward and backward pairs of
//! communication.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use crate::backend::{BlockCopy, Buffer, Category};
use crate::comm::{Blocks, Pending, ReduceOp, Site};
use crate::layout::{AxisId, AxisSet, Entry};

use super::Rank;
use super::extent::{Extent, local_len};
use super::rank::fail;
use super::tape::NodeId;
use super::value::{Value, unique};

/// The value inside a region. Made once per value and axis, so that all the layers that read it share one gather, and
/// its gradients are summed before they are reduced.
pub(crate) fn enter(x: &Value, entry: Entry, site: &Site) -> Value {
    match entry {
        Entry::Copy(axis) if x.rank().degree(axis) > 1 => x.entered(axis, || copy(x, axis, site)),
        Entry::Gather(axis, dim) if x.rank().degree(axis) > 1 => {
            x.entered(axis, || gather_in(x, axis, dim, site))
        }
        Entry::Stay | Entry::Copy(_) | Entry::Gather(..) => x.clone(),
    }
}

/// Invariant to varying use: nothing forward, all-reduce backward.
fn copy(x: &Value, axis: AxisId, site: &Site) -> Value {
    let ready = x.compute();
    let node = ready.node.map(|source| {
        let site = site.clone();
        x.rank().tape().record(move |gradients, gradient| {
            let mut gradient = unique(gradients.rank, gradient);
            let axes = AxisSet::of(axis);
            gradients.rank.all_reduce(axes, &site, ReduceOp::Sum, gradient.view_mut());
            gradients.add(&source, Arc::new(gradient));
        })
    });
    Value::alias(x.rank(), x.extents().to_vec(), ready.data, node)
}

/// Split to varying use: all-gather forward, reduce-scatter backward; readers save the shard.
fn gather_in(x: &Value, axis: AxisId, dim: usize, site: &Site) -> Value {
    let rank = x.rank();
    let line = Line::new(rank, x.extents(), axis, dim, site);
    let ready = x.compute();
    let node = ready.node.map(|source| {
        let line = line.clone();
        rank.tape().record(move |gradients, gradient| {
            gradients.add(&source, Arc::new(line.reduce_scatter(gradients.rank, &gradient)));
        })
    });
    let data = line.all_gather(rank, &ready.data);
    let extents = line.whole.clone();
    let regather = Rc::new(Regather {
        source: ready.data,
        line,
        readers: Cell::new(0),
        state: RefCell::new(Fetch::Idle),
    });
    Value::gathered(rank, extents, data, node, regather)
}

/// Partial to whole: all-reduce forward, identity backward.
pub(crate) fn all_reduce(partial: Value, axes: AxisSet, site: &Site) -> Value {
    let rank = partial.rank().clone();
    let extents = partial.extents().to_vec();
    let (mut data, node) = partial.into_unique();
    rank.all_reduce(axes, site, ReduceOp::Sum, data.view_mut());
    Value::ready(&rank, extents, data, node)
}

/// Partial to split: reduce-scatter forward, all-gather backward.
pub(crate) fn reduce_scatter(partial: &Value, axis: AxisId, dim: usize, site: &Site) -> Value {
    let rank = partial.rank();
    if rank.degree(axis) == 1 {
        return partial.clone();
    }
    let line = Line::new(rank, partial.extents(), axis, dim, site);
    let ready = partial.compute();
    let data = line.reduce_scatter(rank, &ready.data);
    scattered(rank, line, data, ready.node)
}

/// A part of a dim, with its backward: the parts are put together.
pub(crate) fn scattered(rank: &Rank, line: Line, data: Buffer, source: Option<NodeId>) -> Value {
    let extents = line.split.clone();
    let node = source.map(|source| {
        rank.tape().record(move |gradients, gradient| {
            gradients.add(&source, Arc::new(line.all_gather(gradients.rank, &gradient)));
        })
    });
    Value::ready(rank, extents, data, node)
}

/// Ends a region: with the sum on every rank, or with dim `scatter` of the sum split over the axis.
pub(crate) fn leave(partial: Value, axis: AxisId, scatter: Option<usize>, site: &Site) -> Value {
    match scatter {
        None => all_reduce(partial, AxisSet::of(axis), site),
        Some(dim) => reduce_scatter(&partial, axis, dim, site),
    }
}

/// Split to whole: all-gather forward, own slice backward.
pub(crate) fn gather(x: &Value, axis: AxisId, dim: usize, site: &Site) -> Value {
    let rank = x.rank();
    if rank.degree(axis) == 1 {
        return x.clone();
    }
    let line = Line::new(rank, x.extents(), axis, dim, site);
    let ready = x.compute();
    let data = line.all_gather(rank, &ready.data);
    gathered(rank, line, data, ready.node)
}

/// A dim put together from its parts, with its backward: each rank takes its own.
pub(crate) fn gathered(rank: &Rank, line: Line, data: Buffer, source: Option<NodeId>) -> Value {
    let extents = line.whole.clone();
    let node = source.map(|source| {
        rank.tape().record(move |gradients, gradient| {
            gradients.add(&source, Arc::new(line.own_slice(gradients.rank, &gradient)));
        })
    });
    Value::ready(rank, extents, data, node)
}

/// Whole to split: own slice forward, all-gather backward.
pub(crate) fn slice(x: &Value, axis: AxisId, dim: usize, site: &Site) -> Value {
    let rank = x.rank();
    if rank.degree(axis) == 1 {
        return x.clone();
    }
    let line = Line::new(rank, x.extents(), axis, dim, site);
    let ready = x.compute();
    let data = line.own_slice(rank, &ready.data);
    scattered(rank, line, data, ready.node)
}

/// A dim of a tensor along which the ranks of an axis hold, or want, consecutive parts.
#[derive(Clone)]
pub(crate) struct Line {
    axis: AxisSet,
    /// The tensor as one rank holds it with the dim whole, and with it split.
    pub(crate) whole: Vec<Extent>,
    pub(crate) split: Vec<Extent>,
    dim: usize,
    blocks: Blocks,
    site: Site,
}

impl Line {
    pub(crate) fn new(
        rank: &Rank,
        extents: &[Extent],
        axis: AxisId,
        dim: usize,
        site: &Site,
    ) -> Line {
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
        Line {
            axis,
            whole: with_dim(whole),
            split: with_dim(part(rank.position(axis))),
            dim,
            blocks,
            site: site.clone(),
        }
    }

    pub(crate) fn all_gather(&self, rank: &Rank, shard: &Buffer) -> Buffer {
        let group = rank.process_group(self.axis);
        let mut whole = like(shard, local_len(&self.whole));
        group
            .all_gather(&self.site, shard.view(), whole.view_mut(), &self.blocks)
            .unwrap_or_else(|error| fail(error));
        whole
    }

    pub(crate) fn start_reduce_scatter(&self, rank: &Rank, whole: &Arc<Buffer>) -> Pending {
        let shard = like(whole, local_len(&self.split));
        rank.process_group(self.axis).start_reduce_scatter(
            &self.site,
            Arc::clone(whole),
            shard,
            &self.blocks,
        )
    }

    pub(crate) fn start_all_gather(&self, rank: &Rank, shard: &Arc<Buffer>) -> Pending {
        let whole = like(shard, local_len(&self.whole));
        rank.process_group(self.axis).start_all_gather(
            &self.site,
            Arc::clone(shard),
            whole,
            &self.blocks,
        )
    }

    pub(crate) fn reduce_scatter(&self, rank: &Rank, whole: &Buffer) -> Buffer {
        let group = rank.process_group(self.axis);
        let mut shard = like(whole, local_len(&self.split));
        group
            .reduce_scatter(&self.site, whole.view(), shard.view_mut(), &self.blocks)
            .unwrap_or_else(|error| fail(error));
        shard
    }

    fn own_slice(&self, rank: &Rank, whole: &Buffer) -> Buffer {
        let inner = local_len(&self.whole[self.dim + 1..]);
        let part = self.split[self.dim];
        let mut shard = like(whole, local_len(&self.split));
        rank.backend().copy_blocks(
            &BlockCopy {
                blocks: self.blocks.outer,
                len: part.local * inner,
                src_start: (part.offset - self.whole[self.dim].offset) * inner,
                src_stride: self.whole[self.dim].local * inner,
                dst_start: 0,
                dst_stride: part.local * inner,
            },
            whole.view(),
            shard.view_mut(),
        );
        shard
    }
}

/// Room for `len` elements of an activation in the dtype of `other`.
pub(super) fn like(other: &Buffer, len: usize) -> Buffer {
    other.meter().alloc(other.dtype(), len, Category::Activations)
}

/// A gathered tensor that backward gathers once more instead of keeping it: one fetch for all of its readers.
pub(crate) struct Regather {
    source: Arc<Buffer>,
    line: Line,
    readers: Cell<usize>,
    state: RefCell<Fetch>,
}

enum Fetch {
    Idle,
    Running(Pending),
    Done(Arc<Buffer>),
}

impl Regather {
    pub(crate) fn add_reader(&self) {
        self.readers.set(self.readers.get() + 1);
    }

    /// Begins the gather in the background, unless it was begun.
    pub(crate) fn start(&self, rank: &Rank) {
        let mut state = self.state.borrow_mut();
        if let Fetch::Idle = &*state {
            *state = Fetch::Running(self.line.start_all_gather(rank, &self.source));
        }
    }

    /// The gathered data for one reader; the last one frees it.
    pub(crate) fn take(&self, rank: &Rank) -> Arc<Buffer> {
        self.start(rank);
        self.readers.set(self.readers.get() - 1);
        let mut state = self.state.borrow_mut();
        let data = match std::mem::replace(&mut *state, Fetch::Idle) {
            Fetch::Running(pending) => Arc::new(pending.wait().unwrap_or_else(|error| fail(error))),
            Fetch::Done(data) => data,
            Fetch::Idle => unreachable!("the gather was just started"),
        };
        if self.readers.get() > 0 {
            *state = Fetch::Done(Arc::clone(&data));
        }
        data
    }
}
