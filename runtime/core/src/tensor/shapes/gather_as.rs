//! A distributed dim, gathered under another name.

use std::ops::Range;
use std::sync::Arc;

use crate::autograd::Value;
use crate::context::{Rank, alloc_like, fail, parts_along_home, scope};
use crate::layout::{AxisSet, Dims, GatherDimAs, Local, refuse_repeated, refuse_routed};
use crate::tensor::{
    AlwaysRecomputed, Count, InBackward, Operands, Operation, OperationBackward, OperationForward,
    OperationInput, Tensor, apply,
};
use meshwright_backend::{BlockCopy, Buffer};
use meshwright_comm::{Blocks, Site};
use meshwright_mesh::__internal::local_len;
use meshwright_mesh::Extent;

impl<S: Dims> Tensor<S> {
    /// Gathers a dim that is distributed by declaration as dim `to`, which each rank holds whole: all-gather forward.
    /// So every sample can be combined with every other one: `x.dot(&y.gather_as(Batch, Others), Hidden, ())`.
    ///
    /// In a micro-batch, the result has its rows on all ranks. Elements are in the order of the global
    /// tensor. Backward takes this rank's part of the gradient, which the operations that read the result sum over the
    /// ranks.
    ///
    /// Shape: `[.., D, ..] -> [.., E, ..]`.
    #[track_caller]
    pub fn gather_as<D, E: Local, P>(&self, dim: D, to: E) -> Tensor<D::Out>
    where
        D: GatherDimAs<S, E, P>,
    {
        let (_, _): (D, E) = (dim, to);
        const {
            refuse_routed::<S>();
            refuse_repeated::<D::Out>();
        }
        let site = Site::here(scope::current_or("Tensor::gather_as"));
        let info = &S::DIMS[D::DIM];
        Tensor::from_untyped(gather_home(self.value(), info.home, D::DIM, site))
    }
}

#[track_caller]
fn gather_home(x: &Value, axes: AxisSet, dim: usize, site: Site) -> Value {
    let rank = x.rank();
    let mut extents = x.extents().to_vec();
    let parts = parts_along_home(rank, axes, &extents[dim], &site);
    let len = |ranges: &[Range<usize>; 2]| ranges.iter().map(Range::len).sum::<usize>();
    let size = parts.iter().map(len).sum();
    let [outer, inner] = [local_len(&extents[..dim]), local_len(&extents[dim + 1..])];
    extents[dim] = Extent::whole(size);
    if parts.len() == 1 {
        return x.with_extents(extents);
    }
    let lens: Vec<usize> = parts.iter().map(|part| len(part) * inner).collect();
    let operation = GatherOperation {
        axes,
        own: own_runs(&parts, rank.position(axes), [outer, size, inner]),
        moved: moved_runs(&parts, [outer, size, inner]),
        blocks: Blocks::new(outer, lens),
        lens: [x.len(), local_len(&extents)],
        site,
    };
    let inputs = [OperationInput::new(x, InBackward::Ignores)];
    apply(operation, Operands { rank, path: "", inputs, params: [], extents })
}

/// A range of indices, where it begins among the elements of all ranks one after the other, and where in the order of
/// indices.
struct Placed {
    member: usize,
    len: usize,
    gathered: usize,
    sorted: usize,
}

/// Returns the ranges of all ranks, in their order.
fn placed(parts: &[[Range<usize>; 2]]) -> Vec<Placed> {
    let (mut all, mut gathered) = (Vec::new(), 0);
    for (member, ranges) in parts.iter().enumerate() {
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            all.push((range.start, Placed { member, len: range.len(), gathered, sorted: 0 }));
            gathered += range.len();
        }
    }
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|at| all[*at].0);
    let mut sorted = 0;
    for at in order {
        all[at].1.sorted = sorted;
        sorted += all[at].1.len;
    }
    all.into_iter().map(|(_, placed)| placed).collect()
}

/// Returns the copies that put gathered elements in the order of their indices; none if they are.
fn moved_runs(parts: &[[Range<usize>; 2]], [outer, size, inner]: [usize; 3]) -> Vec<BlockCopy> {
    let placed = placed(parts);
    if placed.iter().all(|range| range.gathered == range.sorted) {
        return Vec::new();
    }
    let copy = |range: &Placed| BlockCopy {
        blocks: outer,
        len: range.len * inner,
        src_start: range.gathered * inner,
        src_stride: size * inner,
        dst_start: range.sorted * inner,
        dst_stride: size * inner,
    };
    placed.iter().map(copy).collect()
}

/// Returns the copies of the elements of one rank out of the whole dim.
fn own_runs(
    parts: &[[Range<usize>; 2]],
    own: usize,
    [outer, size, inner]: [usize; 3],
) -> Vec<BlockCopy> {
    let placed = placed(parts);
    let own: Vec<&Placed> = placed.iter().filter(|range| range.member == own).collect();
    let held: usize = own.iter().map(|range| range.len).sum();
    let first = own.first().map_or(0, |range| range.gathered);
    let copy = |range: &&Placed| BlockCopy {
        blocks: outer,
        len: range.len * inner,
        src_start: range.sorted * inner,
        src_stride: size * inner,
        dst_start: (range.gathered - first) * inner,
        dst_stride: held * inner,
    };
    own.iter().map(copy).collect()
}

/// All-gather of a distributed dim; its backward takes this rank's part.
struct GatherOperation {
    axes: AxisSet,
    own: Vec<BlockCopy>,
    moved: Vec<BlockCopy>,
    blocks: Blocks,
    /// Elements of the input and of the output.
    lens: [usize; 2],
    site: Site,
}

impl Operation<Count<1>, Count<0>> for GatherOperation {
    type Saved = AlwaysRecomputed<()>;

    fn forward(&self, forward: OperationForward<'_, Count<1>, Count<0>>) -> (Buffer, ()) {
        let OperationForward { rank, inputs: [x], .. } = forward;
        let x = x.compute().data;
        let mut whole = alloc_like(&x, self.lens[1]);
        rank.process_group(self.axes)
            .all_gather(&self.site, x.view(), whole.view_mut(), &self.blocks)
            .unwrap_or_else(|error| fail(error));
        let out = if self.moved.is_empty() {
            whole
        } else {
            copy_runs(rank, &self.moved, &whole, self.lens[1])
        };
        (out, ())
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, Count<0>>,
        _: AlwaysRecomputed<()>,
    ) {
        let OperationBackward { gradients, inputs: [x], gradient: dy, .. } = backward;
        let dx = copy_runs(gradients.rank, &self.own, &dy, self.lens[0]);
        x.add_gradient(gradients, Arc::new(dx));
    }
}

/// Copies runs of `src` to a buffer that they fill.
fn copy_runs(rank: &Rank, runs: &[BlockCopy], src: &Buffer, len: usize) -> Buffer {
    let mut out = alloc_like(src, len);
    for run in runs {
        rank.backend().copy_blocks(run, src.view(), out.view_mut());
    }
    out
}
