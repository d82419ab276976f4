//! Halo exchange: the elements next to the ranges of each rank along a dim, from the ranks that hold them.

use std::ops::Range;
use std::sync::Arc;

use crate::context::{Rank, alloc_like, fail};
use crate::layout::{AxisSet, DimInfo};
use meshwright_backend::{BlockCopy, Buffer};
use meshwright_comm::{PendingCall, Site};
use meshwright_mesh::__internal::{HaloPart, HaloSide, halo_parts, local_len, shortest_range};
use meshwright_mesh::Extent;

/// The halos of a tensor along one dim: a number of elements next to each range of a rank. All ranks of the axes that
/// distribute the dim exchange them together.
pub(crate) struct Halo {
    axes: AxisSet,
    /// Product of the dims before the dim, and of those behind it.
    outer: usize,
    inner: usize,
    extent: Extent,
    /// Elements of a halo along the dim.
    width: usize,
    /// Extent of each rank of the axes, in the order of group ranks; of this rank alone if there are no others.
    members: Vec<Extent>,
    site: Site,
}

/// Halos on their way to this rank, or zeros, if no other rank has any part of them.
pub(crate) struct HaloTransfer {
    /// Call that receives these parts, in this order.
    arriving: Option<(PendingCall, Vec<HaloPart>)>,
}

impl Halo {
    /// Creates the halos of `width` elements along dim `dim`, one of `dims`, of a tensor with local extents `extents`.
    ///
    /// # Panics
    /// On all ranks, if `width` is more than the shortest range that a rank holds.
    #[track_caller]
    pub(crate) fn new(
        rank: &Rank,
        (dims, extents): (&[DimInfo], &[Extent]),
        dim: usize,
        width: usize,
        site: &Site,
    ) -> Halo {
        let (info, extent) = (&dims[dim], extents[dim]);
        let axes = info.axes();
        let members = match rank.degree_of(axes) {
            1 => vec![extent],
            _ => rank.extents_of_members(info, extent.global),
        };
        let own = rank.position(axes);
        assert!(
            members[own] == extent,
            "`{}`: this rank holds elements {:?} of {}, and not its part of {} elements: neighbors are exchanged along \
             whole sequences only",
            site.field(),
            extent.ranges(),
            info.name,
            extent.global
        );
        let shortest = shortest_range(&members).unwrap_or(0);
        assert!(
            members.len() == 1 || width <= shortest,
            "`{}` reads {width} elements of `{}` next to those that a rank holds, but the shortest range that a rank \
             holds has {shortest}: `{}` = {} is distributed over the {} ranks of {axes}{}; use fewer ranks of {axes}, \
             a \
             longer `{}`, or read at most {shortest} elements",
            site.field(),
            info.name,
            info.name,
            extent.global,
            members.len(),
            if info.home.is_empty() { "" } else { " in zig-zag order" },
            info.name
        );
        let [outer, inner] = [&extents[..dim], &extents[dim + 1..]].map(local_len);
        Halo { axes, outer, inner, extent, width, members, site: site.clone() }
    }

    /// Returns true if no other rank holds a part of the dim.
    pub(crate) fn is_local(&self) -> bool {
        self.members.len() == 1
    }

    /// Returns the nonempty ranges that this rank holds, each with the number of its first element.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        self.extent.numbered_ranges()
    }

    /// Starts to exchange the halos of `x` on one side of each range: one all-to-all of all ranks.
    pub(crate) fn start(&self, rank: &Rank, x: &Buffer, side: HaloSide) -> HaloTransfer {
        if self.is_local() || self.width == 0 {
            return HaloTransfer { arriving: None };
        }
        let parts = halo_parts(&self.members, self.width, side);
        let own = rank.position(self.axes);
        let mut counts = [vec![0; self.members.len()], vec![0; self.members.len()]];
        let mut copies = Vec::new();
        let (mut received, mut sent) = (Vec::new(), 0);
        for part in parts {
            let len = self.outer * part.len * self.inner;
            if part.owner == own {
                copies.push(self.block(&part, self.extent.local, part.first, sent));
                counts[0][part.reader] += len;
                sent += len;
            }
            if part.reader == own {
                counts[1][part.owner] += len;
                received.push(part);
            }
        }
        // Each owner sends its parts in the order of ranges and positions, which a stable sort keeps.
        received.sort_by_key(|part| part.owner);
        let mut packed = alloc_like(x, sent);
        for copy in copies {
            rank.backend().copy_blocks(&copy, x.view(), packed.view_mut());
        }
        let [send, receive] = counts;
        let arriving = alloc_like(x, receive.iter().sum());
        let group = rank.process_group(self.axes);
        let call = group.start_all_to_all(&self.site, Arc::new(packed), arriving, &send, &receive);
        HaloTransfer { arriving: Some((call, received)) }
    }

    /// Waits for the halos of `like`: `[outer, ranges of this rank, width, inner]`, with zeros beyond the ends of the
    /// dim.
    pub(crate) fn finish(&self, rank: &Rank, transfer: HaloTransfer, like: &Buffer) -> Buffer {
        let row = self.ranges().count() * self.width;
        let mut halo = alloc_like(like, self.outer * row * self.inner);
        let (call, parts) = transfer.arriving.unzip();
        let parts = parts.unwrap_or_default();
        if parts.iter().map(|part| part.len).sum::<usize>() < row {
            rank.backend().fill(halo.view_mut(), 0.0);
        }
        let Some(call) = call else { return halo };
        let arrived = call.wait().unwrap_or_else(|error| fail(error));
        let mut start = 0;
        for part in parts {
            let at = part.range * self.width + part.position;
            let copy = self.block(&part, row, at, start).reversed();
            rank.backend().copy_blocks(&copy, arrived.view(), halo.view_mut());
            start += self.outer * part.len * self.inner;
        }
        halo
    }

    /// Returns the copy of the elements of a part, from number `first` of rows of `row` elements to a dense block that
    /// begins at `start`.
    fn block(&self, part: &HaloPart, row: usize, first: usize, start: usize) -> BlockCopy {
        let len = part.len * self.inner;
        BlockCopy {
            blocks: self.outer,
            len,
            src_start: first * self.inner,
            src_stride: row * self.inner,
            dst_start: start,
            dst_stride: len,
        }
    }

    /// Returns the tensor shifted by `width` elements away from its halos on one side: element `i` of the result is
    /// element `i - width` of `x`, or `i + width`, and zero beyond the ends of the dim.
    pub(crate) fn shifted(&self, rank: &Rank, x: &Buffer, side: HaloSide) -> Buffer {
        let transfer = self.start(rank, x, side);
        let mut out = alloc_like(x, x.len());
        let row = self.extent.local;
        let copied = |len: usize, [from, src_row]: [usize; 2], to: usize| BlockCopy {
            blocks: self.outer,
            len: len * self.inner,
            src_start: from * self.inner,
            src_stride: src_row * self.inner,
            dst_start: to * self.inner,
            dst_stride: row * self.inner,
        };
        for (first, range) in self.ranges() {
            let kept = range.len() - self.width;
            let (from, to) = match side {
                HaloSide::Before => (first, first + self.width),
                HaloSide::After => (first + self.width, first),
            };
            let copy = copied(kept, [from, row], to);
            rank.backend().copy_blocks(&copy, x.view(), out.view_mut());
        }
        let halo = self.finish(rank, transfer, x);
        let halo_row = self.ranges().count() * self.width;
        for (number, (first, range)) in self.ranges().enumerate() {
            let to = match side {
                HaloSide::Before => first,
                HaloSide::After => first + range.len() - self.width,
            };
            let copy = copied(self.width, [number * self.width, halo_row], to);
            rank.backend().copy_blocks(&copy, halo.view(), out.view_mut());
        }
        out
    }
}
