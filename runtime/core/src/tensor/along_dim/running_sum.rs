//! Running sums along a dim whose ranges several ranks hold.

use std::sync::Arc;

use crate::autograd::Value;
use crate::context::{Rank, fail};
use crate::layout::{AxisSet, DimInfo};
use crate::tensor::{
    AlwaysRecomputed, Count, InBackward, Operands, Operation, OperationBackward, OperationForward,
    OperationInput, apply,
};
use meshwright_backend::{BlockCopy, Buffer, DType, MiddleDim, View};
use meshwright_comm::{Blocks, Site};
use meshwright_mesh::__internal::local_len;
use meshwright_mesh::Extent;

/// Returns the sums of all elements of the global dim number `position`, one of `dims`, up to each one.
#[track_caller]
pub(super) fn running_sum(x: &Value, dims: &[DimInfo], position: usize, site: Site) -> Value {
    let (rank, extents) = (x.rank(), x.extents());
    let (info, extent) = (&dims[position], extents[position]);
    let members = match rank.degree_of(info.axes()) {
        1 => vec![extent],
        _ => rank.extents_of_members(info, extent.global),
    };
    let [outer, inner] = [&extents[..position], &extents[position + 1..]].map(local_len);
    let operation = RunningSumAcross { outer, inner, extent, members, axes: info.axes(), site };
    let inputs = [OperationInput::new(x, InBackward::Ignores)];
    let extents = extents.to_vec();
    apply(operation, Operands { rank, path: "", inputs, params: [], extents })
}

/// Sums up to each element: within each range of this rank, onto the sum of all ranges before it. Its backward sums
/// from each element on.
struct RunningSumAcross {
    outer: usize,
    inner: usize,
    extent: Extent,
    /// Extent of each rank that holds ranges of the dim, in the order of group ranks.
    members: Vec<Extent>,
    axes: AxisSet,
    site: Site,
}

impl RunningSumAcross {
    /// Computes the sums in f32, and rounds them once.
    fn sums(&self, rank: &Rank, x: &Buffer, from_end: bool) -> Buffer {
        let backend = rank.backend();
        let mut wide = rank.alloc_scratch(DType::F32, x.len());
        backend.cast(x.view(), wide.view_mut());
        let parts: Vec<RangeOfRank> = self.parts(from_end);
        let mut padded: Vec<Buffer> =
            parts.iter().map(|part| self.padded(rank, part, wide.view())).collect();
        let columns = self.outer * self.inner;
        let mut totals = rank.alloc_scratch(DType::F32, parts.len() * columns);
        for (number, (part, data)) in parts.iter().zip(&padded).enumerate() {
            let to = totals.view_mut().into_slice(number * columns..(number + 1) * columns);
            backend.sum_dim(self.padded_dim(part), data.view(), to, 1.0);
        }
        let earlier = self.earlier_totals(rank, &totals, from_end);
        for ((part, data), starts) in parts.iter().zip(&mut padded).zip(earlier) {
            self.add_start(rank, part, data, starts);
            let mut sums = rank.alloc_scratch(DType::F32, data.len());
            backend.running_sum(self.padded_dim(part), from_end, data.view(), sums.view_mut());
            backend.copy_blocks(&self.elements(part).reversed(), sums.view(), wide.view_mut());
        }
        let mut y = rank.alloc_activation(x.len());
        backend.cast(wide.view(), y.view_mut());
        y
    }

    /// Returns the ranges of this rank.
    fn parts(&self, from_end: bool) -> Vec<RangeOfRank> {
        let ranges = self.extent.numbered_ranges();
        ranges.map(|(first, range)| RangeOfRank { first, len: range.len(), from_end }).collect()
    }

    /// Returns the elements of a range, with a zero where its sums start.
    fn padded(&self, rank: &Rank, part: &RangeOfRank, x: View<'_>) -> Buffer {
        let MiddleDim { outer, len, inner } = self.padded_dim(part);
        let mut data = rank.alloc_scratch(DType::F32, outer * len * inner);
        rank.backend().fill(data.view_mut(), 0.0);
        rank.backend().copy_blocks(&self.elements(part), x, data.view_mut());
        data
    }

    /// The dim of a range with the element where its sums start.
    fn padded_dim(&self, part: &RangeOfRank) -> MiddleDim {
        MiddleDim { outer: self.outer, len: part.len + 1, inner: self.inner }
    }

    /// Returns the copy of a range from the elements of the rank.
    fn elements(&self, part: &RangeOfRank) -> BlockCopy {
        let inner = self.inner;
        BlockCopy {
            blocks: self.outer,
            len: part.len * inner,
            src_start: part.first * inner,
            src_stride: self.extent.local * inner,
            dst_start: if part.from_end { 0 } else { inner },
            dst_stride: (part.len + 1) * inner,
        }
    }

    /// Puts the sum of all ranges before a range where its sums start.
    fn add_start(&self, rank: &Rank, part: &RangeOfRank, data: &mut Buffer, start: Buffer) {
        let copy = BlockCopy {
            blocks: self.outer,
            len: self.inner,
            src_start: 0,
            src_stride: self.inner,
            dst_start: if part.from_end { part.len * self.inner } else { 0 },
            dst_stride: (part.len + 1) * self.inner,
        };
        rank.backend().copy_blocks(&copy, start.view(), data.view_mut());
    }

    /// Returns the sum of all ranges before each range of this rank, or with `from_end` behind it, from the totals of
    /// the ranges of all ranks: one all-gather.
    fn earlier_totals(&self, rank: &Rank, totals: &Buffer, from_end: bool) -> Vec<Buffer> {
        let columns = self.outer * self.inner;
        let held: Vec<Vec<usize>> = self
            .members
            .iter()
            .map(|extent| extent.numbered_ranges().map(|(_, range)| range.start).collect())
            .collect();
        let starts: Vec<usize> = held.iter().flatten().copied().collect();
        let mut all = rank.alloc_scratch(DType::F32, starts.len() * columns);
        if self.members.len() == 1 {
            rank.backend().cast(totals.view(), all.view_mut());
        } else {
            let lens: Vec<usize> = held.iter().map(|starts| starts.len() * columns).collect();
            rank.process_group(self.axes)
                .all_gather(&self.site, totals.view(), all.view_mut(), &Blocks::new(1, lens))
                .unwrap_or_else(|error| fail(error));
        }
        // The totals in the order in which ranges are added up.
        let mut order: Vec<usize> = (0..starts.len()).collect();
        order.sort_by_key(|number| starts[*number]);
        if from_end {
            order.reverse();
        }
        let mut ordered = rank.alloc_scratch(DType::F32, all.len());
        for (to, from) in order.iter().enumerate() {
            let from = all.view().slice(from * columns..(from + 1) * columns);
            let to = ordered.view_mut().into_slice(to * columns..(to + 1) * columns);
            rank.backend().cast(from, to);
        }
        let before = |start: usize| {
            let is_own = |number: &usize| starts[*number] == start;
            let count = order.iter().position(is_own).expect("a range of this rank is listed");
            let mut sum = rank.alloc_scratch(DType::F32, columns);
            let dim = MiddleDim { outer: 1, len: count, inner: columns };
            let earlier = ordered.view().slice(0..count * columns);
            rank.backend().sum_dim(dim, earlier, sum.view_mut(), 1.0);
            sum
        };
        self.extent.numbered_ranges().map(|(_, range)| before(range.start)).collect()
    }
}

/// A range of a rank: the number of its first element, and its length.
struct RangeOfRank {
    first: usize,
    len: usize,
    /// True if sums start behind the range.
    from_end: bool,
}

impl Operation<Count<1>, Count<0>> for RunningSumAcross {
    type Saved = AlwaysRecomputed<()>;

    fn forward(&self, forward: OperationForward<'_, Count<1>, Count<0>>) -> (Buffer, ()) {
        let OperationForward { rank, inputs: [x], .. } = forward;
        (self.sums(rank, &x.compute().data, false), ())
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, Count<0>>,
        _: AlwaysRecomputed<()>,
    ) {
        let OperationBackward { gradients, inputs: [x], gradient: dy, .. } = backward;
        let dx = self.sums(gradients.rank, &dy, true);
        x.add_gradient(gradients, Arc::new(dx));
    }
}
