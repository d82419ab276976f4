//! Size and place of a rank's block in a global tensor, dim by dim.

use std::any::TypeId;
use std::cell::OnceCell;
use std::rc::Rc;

use crate::backend::BlockIndex;
use crate::comm::{Blocks, Communicator, Site};
use crate::layout::{AxisSet, DimInfo, Dims};

use super::Rank;
use super::rank::fail;

/// Size and place of one dim of a tensor on this rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Elements of the global tensor along the dim.
    pub global: usize,
    /// Elements that this rank holds.
    pub local: usize,
    /// Index in the global tensor of the first element that this rank holds.
    pub offset: usize,
    /// Offset and length of the range that a [`Split`](crate::layout::Split) of the dim cuts: the whole dim, the part that
    /// the home of the dim leaves to this rank, or the rows of a micro-batch.
    cut: (usize, usize),
}

impl Extent {
    /// A dim of which this rank holds every element.
    pub fn whole(size: usize) -> Extent {
        Extent { global: size, local: size, offset: 0, cut: (0, size) }
    }

    /// Part `index` of `parts` of a dim: elements `index*size/parts .. (index+1)*size/parts`.
    pub fn part(size: usize, index: usize, parts: usize) -> Extent {
        Extent::whole(size).split(index, parts)
    }

    /// The extent on `rank` of a dim of `size` elements that is distributed as `info` says.
    pub fn of(info: &DimInfo, size: usize, rank: &Rank) -> Extent {
        let position = |axes: AxisSet| (rank.position(axes), rank.degree_of(axes));
        let whole = match rank.micro_batch() {
            Some(rows) if rows.is(info, size) => rows.extent,
            _ => {
                let (index, parts) = position(info.home);
                Extent::part(size, index, parts).range(0, usize::MAX)
            }
        };
        info.split.map_or(whole, |axis| {
            let (index, parts) = position(AxisSet::of(axis));
            whole.split(index, parts)
        })
    }

    /// At most `len` elements from element `first` of an unsplit extent on, as an unsplit extent.
    pub(super) fn range(self, first: usize, len: usize) -> Extent {
        let offset = self.offset + first;
        let local = len.min(self.local - first);
        Extent { global: self.global, local, offset, cut: (offset, local) }
    }

    /// Part `index` of `parts` of an unsplit extent.
    pub(super) fn split(self, index: usize, parts: usize) -> Extent {
        let (start, len) = self.cut;
        let offset = index * len / parts;
        let local = (index + 1) * len / parts - offset;
        Extent { local, offset: start + offset, ..self }
    }

    /// The unsplit extent of which this is a part.
    pub(super) fn unsplit(self) -> Extent {
        let (offset, local) = self.cut;
        Extent { local, offset, ..self }
    }

    /// Several dims, of which only the first may be split, as one.
    pub fn flattened(dims: &[Extent]) -> Extent {
        let inner: usize = dims[1..].iter().map(|extent| extent.global).product();
        let first = dims[0];
        Extent {
            global: first.global * inner,
            local: first.local * inner,
            offset: first.offset * inner,
            cut: (first.cut.0 * inner, first.cut.1 * inner),
        }
    }
}

/// The rows of the batch that a micro-batch holds on this rank.
///
/// Tensors that are computed from a micro-batch know it by their [`Rank`], so that new tensors made for them have the
/// same rows.
pub(crate) struct MicroBatch {
    key: TypeId,
    extent: Extent,
    /// The axes over which the rows are distributed.
    axes: AxisSet,
    /// Rows on all ranks.
    rows: OnceCell<usize>,
}

impl MicroBatch {
    /// The micro-batch of the rows `extent` of dim `info`.
    pub(super) fn new(info: &DimInfo, extent: Extent) -> Rc<MicroBatch> {
        let (key, axes) = ((info.key)(), info.home);
        Rc::new(MicroBatch { key, extent, axes, rows: OnceCell::new() })
    }

    /// Whether it holds rows of the dim `info` of `size` elements.
    fn is(&self, info: &DimInfo, size: usize) -> bool {
        self.key == (info.key)() && self.extent.global == size
    }

    /// Rows on all ranks: one small all-reduce over the axes of the dim the first time.
    fn rows(&self, rank: &Rank, site: &Site) -> usize {
        *self.rows.get_or_init(|| {
            let mut rows = [self.extent.local as f64];
            rank.all_reduce_f64(self.axes, site, &mut rows);
            rows[0] as usize
        })
    }
}

/// Elements along dim `info` on all ranks: of the micro-batch, if the tensor on `rank` is computed from one.
pub(super) fn elements_of(info: &DimInfo, extent: &Extent, rank: &Rank, site: &Site) -> usize {
    match rank.micro_batch() {
        Some(batch) if batch.is(info, extent.global) => batch.rows(rank, site),
        _ => extent.global,
    }
}

/// The block of each dim of `S` that falls to `rank`.
#[track_caller]
pub(super) fn extents_of<S: Dims>(rank: &Rank, sizes: &[usize]) -> Vec<Extent> {
    assert_eq!(
        sizes.len(),
        S::DIMS.len(),
        "a shape of {} dims was given {} sizes",
        S::DIMS.len(),
        sizes.len()
    );
    rank.note_use_of(S::VARIES);
    S::DIMS.iter().zip(sizes).map(|(info, size)| Extent::of(info, *size, rank)).collect()
}

/// The number of elements of each dim of the global tensor.
pub(super) fn global_sizes(extents: &[Extent]) -> Vec<usize> {
    extents.iter().map(|extent| extent.global).collect()
}

/// The number of elements that this rank holds.
pub(crate) fn local_len(extents: &[Extent]) -> usize {
    extents.iter().map(|extent| extent.local).product()
}

/// Where a block lies in its global tensor, in the words of the kernels.
pub(crate) fn block_index(extents: &[Extent]) -> BlockIndex {
    BlockIndex {
        local: extents.iter().map(|extent| extent.local).collect(),
        global: global_sizes(extents),
        offset: extents.iter().map(|extent| extent.offset).collect(),
    }
}

/// The global tensor of which `block` is this rank's part, row-major. All ranks of the axes that distribute a dim call it.
#[track_caller]
pub(super) fn gather_block(
    rank: &Rank,
    dims: &[DimInfo],
    extents: &[Extent],
    mut block: Vec<f32>,
) -> Vec<f32> {
    let site = Site::here("gather");
    let mut lens: Vec<usize> = extents.iter().map(|extent| extent.local).collect();
    for (dim, info) in dims.iter().enumerate() {
        let group = rank.process_group(info.axes());
        if group.size() == 1 {
            continue;
        }
        let parts = parts_of(&group, info, &extents[dim], &site);
        let (outer, inner) =
            (lens[..dim].iter().product(), lens[dim + 1..].iter().product::<usize>());
        let parts: Vec<usize> = parts.into_iter().map(|part| part * inner).collect();
        lens[dim] = parts.iter().sum::<usize>() / inner.max(1);
        let mut whole = vec![0.0f32; lens.iter().product()];
        let blocks = Blocks::new(outer, parts);
        group
            .all_gather(&site, block.as_slice().into(), whole.as_mut_slice().into(), &blocks)
            .unwrap_or_else(|error| fail(error));
        block = whole;
    }
    block
}

/// Elements of each member of `group`, along whose axes a dim is distributed.
fn parts_of(group: &Communicator, info: &DimInfo, extent: &Extent, site: &Site) -> Vec<usize> {
    let members = group.size();
    if info.home.is_empty() {
        let whole = extent.unsplit();
        return (0..members).map(|member| whole.split(member, members).local).collect();
    }
    // The rows of micro-batches may be cut in any way.
    let (own, mut all) = ([extent.local as u32], vec![0u32; members]);
    let even = Blocks::even(1, 1, members);
    group
        .all_gather(site, own.as_slice().into(), all.as_mut_slice().into(), &even)
        .unwrap_or_else(|error| fail(error));
    all.into_iter().map(|part| part as usize).collect()
}

/// The dims of a shape, for messages: `(Batch, Split<Seq, tp>, Hidden)`.
pub(crate) fn shape_name(dims: &[DimInfo]) -> String {
    let dims: Vec<String> = dims.iter().map(ToString::to_string).collect();
    format!("({})", dims.join(", "))
}

/// Sizes of dims, for messages: `Batch = 8 (2 of them here, from 4 on), Seq = 512`.
pub(crate) fn named_sizes(dims: &[DimInfo], extents: &[Extent]) -> String {
    let size = |(dim, extent): (&DimInfo, &Extent)| {
        let Extent { global, local, offset, .. } = extent;
        match global == local {
            true => format!("{} = {global}", dim.name),
            false => format!("{} = {global} ({local} of them here, from {offset} on)", dim.name),
        }
    };
    dims.iter().zip(extents).map(size).collect::<Vec<_>>().join(", ")
}

/// Makes sure that two operands, whose dims are the same by their types, have the same sizes.
///
/// # Panics
/// When a size, or the part of a dim that this rank holds, differs.
#[track_caller]
pub(crate) fn check_sizes(dims: &[DimInfo], left: (&str, &[Extent]), right: (&str, &[Extent])) {
    assert!(
        left.1 == right.1,
        "{} has {}, but {} has {}: make both of the same sizes, and of the same micro-batch (`Tensor::from_fn(x.rank(), \
         &x.sizes(), ..)` makes one that fits `x`)",
        left.0,
        named_sizes(dims, left.1),
        right.0,
        named_sizes(dims, right.1)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_part_fill_it() {
        for (size, outer, inner) in [(8, 2, 2), (9, 2, 2), (7, 3, 2), (5, 2, 4)] {
            for index in 0..outer {
                let held = Extent::part(size, index, outer).range(0, usize::MAX);
                let mut end = held.offset;
                for part in 0..inner {
                    let part = held.split(part, inner);
                    assert_eq!(part.offset, end);
                    assert_eq!(part.unsplit(), held);
                    end += part.local;
                }
                assert_eq!(end, held.offset + held.local);
            }
        }
    }
}
