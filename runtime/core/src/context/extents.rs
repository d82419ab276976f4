//! Local extents on the mesh of a rank, and global tensors gathered from their blocks.

use std::ops::Range;

use crate::layout::{AxisId, AxisSet, DimInfo, Dims};
use meshwright_backend::BlockIndex;
use meshwright_comm::{Blocks, Communicator, Site};
use meshwright_mesh::__internal::global_sizes;
use meshwright_mesh::Extent;

use super::failure::fail;
use super::rank::Rank;

impl Rank {
    /// Returns the local extent of a dim of `size` elements that is distributed as `info` declares.
    pub fn local_extent(&self, info: &DimInfo, size: usize) -> Extent {
        let rows = self.micro_batch().and_then(|batch| batch.rows_of(info, size));
        let whole = rows.unwrap_or_else(|| {
            part_along_home(info.home, size, self.position(info.home), self.degree_of(info.home))
        });
        whole.split(self.position(info.split), self.degree_of(info.split))
    }

    /// Returns the local extent on each rank of the process group of the dim's axes, in the order of group ranks. No
    /// dim of samples, whose extent depends on the micro-batch.
    pub(crate) fn extents_of_members(&self, info: &DimInfo, size: usize) -> Vec<Extent> {
        let (homes, parts) = (self.degree_of(info.home), self.degree_of(info.split));
        let on_rank = |member: &usize| {
            let index = |axes| self.position_of(*member, axes);
            part_along_home(info.home, size, index(info.home), homes)
                .split(index(info.split), parts)
        };
        self.process_group(info.axes()).members().iter().map(on_rank).collect()
    }

    /// Returns the parts that the ranks along the axes of a split hold of the elements that the home of the dim leaves
    /// to this rank; of a sequence that is distributed over `cp`, the parts of all ranks.
    pub(crate) fn parts_of(&self, info: &DimInfo, extent: &Extent) -> Vec<Extent> {
        let (home, splits) = (self.degree_of(info.home), self.degree_of(info.split));
        let wholes = if info.home.contains(AxisId::Cp) && home > 1 {
            (0..home).map(|index| part_along_home(info.home, extent.global, index, home)).collect()
        } else {
            vec![extent.unsplit()]
        };
        let split = |whole: Extent| (0..splits).map(move |index| whole.split(index, splits));
        wholes.into_iter().flat_map(split).collect()
    }

    /// Returns true if `extent` has only some of the elements of a distributed dim that the home leaves to this rank:
    /// those of a micro-batch.
    pub(crate) fn holds_part_of_batch(&self, info: &DimInfo, extent: &Extent) -> bool {
        let (index, parts) = (self.position(info.home), self.degree_of(info.home));
        self.micro_batch().is_some()
            && extent.unsplit() != part_along_home(info.home, extent.global, index, parts)
    }
}

/// Returns part `index` of `parts` of a dim of `size` elements that is distributed over `home`.
fn part_along_home(home: AxisSet, size: usize, index: usize, parts: usize) -> Extent {
    if home.contains(AxisId::Cp) && parts > 1 {
        Extent::zig_zag(size, index, parts)
    } else {
        Extent::part(size, index, parts).sub_range(0, usize::MAX)
    }
}

/// Returns the ranges of indices that each rank along `axes` holds of a dim that is distributed over them: those of the
/// micro-batch, which the ranks exchange, if the tensor on `rank` is computed from one.
pub(crate) fn parts_along_home(
    rank: &Rank,
    axes: AxisSet,
    extent: &Extent,
    site: &Site,
) -> Vec<[Range<usize>; 2]> {
    let parts = rank.degree_of(axes);
    if parts == 1 {
        return vec![extent.ranges()];
    }
    if rank.micro_batch().is_some() {
        return exchange_ranges(&rank.process_group(axes), extent, site);
    }
    (0..parts).map(|index| part_along_home(axes, extent.global, index, parts).ranges()).collect()
}

/// Returns the number of elements along dim `info` on all ranks: the elements of the micro-batch, if the tensor on
/// `rank` is computed from one. The first call for a micro-batch is one small all-reduce over the axes of the dim; each
/// one is for another dim over the same axes, such as one that the dim of the batch was joined or renamed to.
pub(crate) fn elements_along(info: &DimInfo, extent: &Extent, rank: &Rank, site: &Site) -> usize {
    match rank.micro_batch() {
        Some(batch) if batch.rows_of(info, extent.global).is_some() => {
            batch.global_rows(|axes, local| {
                let mut rows = [local as f64];
                rank.all_reduce_f64(axes, site, &mut rows);
                rows[0] as usize
            })
        }
        Some(batch) if batch.is_distributed_as(info) => {
            let mut elements = [extent.unsplit().local as f64];
            rank.all_reduce_f64(info.home, site, &mut elements);
            elements[0] as usize
        }
        _ => extent.global,
    }
}

/// Returns the local extent of each dim of `S` on `rank`.
#[track_caller]
pub(crate) fn extents_of<S: Dims>(rank: &Rank, sizes: &[usize]) -> Vec<Extent> {
    rank.note_use_of(S::VARIES);
    extents_of_dims(S::DIMS, rank, sizes)
}

#[track_caller]
fn extents_of_dims(dims: &[DimInfo], rank: &Rank, sizes: &[usize]) -> Vec<Extent> {
    assert_eq!(
        sizes.len(),
        dims.len(),
        "a shape of {} dims was given {} sizes",
        dims.len(),
        sizes.len()
    );
    let len = sizes.iter().try_fold(1usize, |len, size| len.checked_mul(*size));
    assert!(
        sizes.contains(&0) || len.is_some_and(|len| len <= isize::MAX as usize / size_of::<f32>()),
        "a tensor of {sizes:?} elements is larger than any memory"
    );
    dims.iter().zip(sizes).map(|(info, size)| rank.local_extent(info, *size)).collect()
}

/// Returns the position of a block in its global tensor as an argument of kernels.
pub(crate) fn block_index(extents: &[Extent]) -> BlockIndex {
    let of_each = |f: fn(&Extent) -> usize| extents.iter().map(f).collect();
    BlockIndex {
        local: of_each(|extent| extent.local),
        global: global_sizes(extents),
        offset: of_each(|extent| extent.offset),
        gap_at: of_each(|extent| extent.gap().0),
        gap: of_each(|extent| extent.gap().1),
    }
}

/// Gathers a global tensor from `block`, this rank's part, row-major. All ranks of the axes that distribute a dim call
/// it.
#[track_caller]
pub(crate) fn gather_block(
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
        let parts = part_ranges(&group, info, &extents[dim], &site);
        let (outer, inner) =
            (lens[..dim].iter().product(), lens[dim + 1..].iter().product::<usize>());
        let len = |ranges: &[Range<usize>; 2]| ranges.iter().map(Range::len).sum::<usize>();
        lens[dim] = parts.iter().map(len).sum();
        let mut whole = vec![0.0f32; lens.iter().product()];
        let blocks =
            Blocks::new(outer, parts.iter().map(|part| len(part) * inner).collect::<Vec<_>>());
        group
            .all_gather(&site, block.as_slice().into(), whole.as_mut_slice().into(), &blocks)
            .unwrap_or_else(|error| fail(error));
        block = in_global_order(whole, &parts, lens[dim], inner);
    }
    block
}

/// Returns the ranges of indices of each rank of `group`, along whose axes a dim is distributed.
fn part_ranges(
    group: &Communicator,
    info: &DimInfo,
    extent: &Extent,
    site: &Site,
) -> Vec<[Range<usize>; 2]> {
    let size = group.size();
    if info.home.is_empty() {
        let whole = extent.unsplit();
        return (0..size).map(|index| whole.split(index, size).ranges()).collect();
    }
    // Micro-batches may cut the rows in any way.
    exchange_ranges(group, extent, site)
}

/// Returns the ranges of indices of each rank of `group`.
fn exchange_ranges(group: &Communicator, extent: &Extent, site: &Site) -> Vec<[Range<usize>; 2]> {
    let size = group.size();
    let own = extent.ranges().map(|range| [range.start as u32, range.end as u32]);
    let mut all = vec![0u32; 4 * size];
    let even = Blocks::even(1, 4, size);
    group
        .all_gather(site, own.as_flattened().into(), all.as_mut_slice().into(), &even)
        .unwrap_or_else(|error| fail(error));
    let (ranges, _) = all.as_chunks::<4>();
    let range = |[first, end, second, last]: [u32; 4]| {
        [first as usize..end as usize, second as usize..last as usize]
    };
    ranges.iter().copied().map(range).collect()
}

/// Sorts the ranges of a gathered dim, which has `len` elements of `inner` values each, by their indices.
fn in_global_order(
    gathered: Vec<f32>,
    parts: &[[Range<usize>; 2]],
    len: usize,
    inner: usize,
) -> Vec<f32> {
    let ranges = parts.iter().flatten().filter(|range| !range.is_empty());
    let mut placed: Vec<(usize, Range<usize>)> = ranges
        .scan(0, |end, range| {
            let start = *end;
            *end += range.len();
            Some((range.start, start..*end))
        })
        .collect();
    if inner == 0 || placed.is_sorted_by_key(|(index, _)| *index) {
        return gathered;
    }
    placed.sort_by_key(|(index, _)| *index);
    let rows = gathered.chunks_exact(len * inner);
    let of_row = |row: &[f32]| -> Vec<f32> {
        let ranges = placed.iter().map(|(_, at)| &row[at.start * inner..at.end * inner]);
        ranges.flatten().copied().collect()
    };
    rows.flat_map(of_row).collect()
}
