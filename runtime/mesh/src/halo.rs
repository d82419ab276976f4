//! Halos along a distributed dim: the elements next to the ranges of a rank, which other ranks hold.

use std::ops::Range;

use crate::Extent;

/// The side of a range on which a halo is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HaloSide {
    /// Elements with lower indices than the range.
    Before,
    /// Elements with higher indices.
    After,
}

/// Consecutive elements of the halo of one rank, all held by one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HaloPart {
    /// The rank that holds the elements, as an index into the extents.
    pub owner: usize,
    /// The rank whose halo has them.
    pub reader: usize,
    /// Number of the range of the reader.
    pub range: usize,
    /// Position of the first element in the halo of this range.
    pub position: usize,
    /// Number of the first element among those of the owner.
    pub first: usize,
    /// Number of elements.
    pub len: usize,
}

impl Extent {
    /// Returns the nonempty ranges of indices that this rank holds, each with the number of its first element among
    /// those of the rank.
    pub fn numbered_ranges(&self) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        let [first, second] = self.ranges();
        let before_gap = first.len();
        [(0, first), (before_gap, second)].into_iter().filter(|(_, range)| !range.is_empty())
    }
}

/// Returns the parts of all halos of `width` elements on one side of each range, where `extents` has the extent of each
/// rank. A halo ends at the ends of the dim. The parts are in the order of readers, ranges and positions.
pub fn halo_parts(extents: &[Extent], width: usize, side: HaloSide) -> Vec<HaloPart> {
    let held = |(rank, extent): (usize, &Extent)| {
        extent.numbered_ranges().map(move |(first, range)| (range, rank, first))
    };
    let mut holders: Vec<_> = extents.iter().enumerate().flat_map(held).collect();
    holders.sort_unstable_by_key(|(range, ..)| range.start);
    let mut parts = Vec::new();
    for (reader, extent) in extents.iter().enumerate() {
        for (range, (_, own)) in extent.numbered_ranges().enumerate() {
            let (halo, start) = match side {
                HaloSide::Before => (
                    own.start.saturating_sub(width)..own.start,
                    own.start as isize - width as isize,
                ),
                HaloSide::After => {
                    (own.end..extent.global.min(own.end.saturating_add(width)), own.end as isize)
                }
            };
            let from = holders.partition_point(|(held, ..)| held.end <= halo.start);
            for (held, owner, first) in &holders[from..] {
                let common = halo.start.max(held.start)..halo.end.min(held.end);
                if common.is_empty() {
                    break;
                }
                parts.push(HaloPart {
                    owner: *owner,
                    reader,
                    range,
                    position: (common.start as isize - start) as usize,
                    first: first + common.start - held.start,
                    len: common.len(),
                });
            }
        }
    }
    parts
}

/// Returns the number of elements of the shortest range that a rank holds; `None` if no rank holds an element.
pub fn shortest_range(extents: &[Extent]) -> Option<usize> {
    extents.iter().flat_map(Extent::numbered_ranges).map(|(_, range)| range.len()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the extents of `cp` parts, in zig-zag order or consecutive, each split into `tp` parts.
    fn extents(size: usize, cp: usize, tp: usize, zig_zag: bool) -> Vec<Extent> {
        let part = if zig_zag { Extent::zig_zag } else { Extent::part };
        let whole = |index| part(size, index, cp).sub_range(0, usize::MAX);
        (0..cp * tp).map(|rank| whole(rank / tp).split(rank % tp, tp)).collect()
    }

    /// Returns the halo of each range of a rank, by search: the owner of each element, and its number there.
    fn searched(
        extents: &[Extent],
        reader: usize,
        width: usize,
        side: HaloSide,
    ) -> Vec<Vec<Option<(usize, usize)>>> {
        let holder = |index: isize| {
            extents.iter().enumerate().find_map(|(rank, extent)| {
                let number = extent.positions().position(|held| held as isize == index)?;
                Some((rank, number))
            })
        };
        let halo = |(_, own): (usize, Range<usize>)| {
            let start = match side {
                HaloSide::Before => own.start as isize - width as isize,
                HaloSide::After => own.end as isize,
            };
            (0..width as isize).map(|at| holder(start + at)).collect()
        };
        extents[reader].numbered_ranges().map(halo).collect()
    }

    /// Every size, mesh, order, width and side, against a search for the holder of each element.
    #[test]
    fn halos_are_as_searched() {
        let sizes = (0..=25).chain([40]);
        for (size, cp, tp) in
            sizes.flat_map(|size| (1..=4).flat_map(move |cp| (1..=4).map(move |tp| (size, cp, tp))))
        {
            for (zig_zag, side) in [false, true]
                .into_iter()
                .flat_map(|zig_zag| [HaloSide::Before, HaloSide::After].map(|side| (zig_zag, side)))
            {
                let extents = extents(size, cp, tp, zig_zag);
                for width in [0, 1, 2, 3, 7] {
                    let parts = halo_parts(&extents, width, side);
                    for reader in 0..extents.len() {
                        let expected = searched(&extents, reader, width, side);
                        let mut got: Vec<_> = expected.iter().map(|_| vec![None; width]).collect();
                        for part in parts.iter().filter(|part| part.reader == reader) {
                            for at in 0..part.len {
                                let element = &mut got[part.range][part.position + at];
                                assert_eq!(*element, None, "{part:?}");
                                *element = Some((part.owner, part.first + at));
                            }
                        }
                        assert_eq!(
                            got, expected,
                            "{size} over cp={cp},tp={tp}, {zig_zag}, {width}"
                        );
                    }
                    let order = |part: &HaloPart| (part.reader, part.range, part.position);
                    assert!(parts.is_sorted_by_key(order));
                    let has_one_owner = shortest_range(&extents).is_none_or(|len| width <= len);
                    let halos = parts.iter().map(|part| (part.reader, part.range));
                    let owners: std::collections::BTreeSet<_> = halos.clone().collect();
                    assert!(!has_one_owner || owners.len() == halos.count());
                }
            }
        }
    }

    #[test]
    fn shortest_ranges_are_those_of_chunks() {
        let shortest = |size, cp, tp, zig_zag| shortest_range(&extents(size, cp, tp, zig_zag));
        assert_eq!(shortest(16, 4, 1, false), Some(4));
        assert_eq!(shortest(16, 4, 1, true), Some(2));
        assert_eq!(shortest(15, 4, 1, true), Some(1));
        assert_eq!(shortest(3, 1, 4, false), Some(1));
        assert_eq!(shortest(0, 2, 2, true), None);
        // The chunks of the last rank are neighbors, and make up one range.
        let last = Extent::zig_zag(16, 3, 4);
        assert_eq!(last.numbered_ranges().collect::<Vec<_>>(), [(0, 6..10)]);
        let first = Extent::zig_zag(16, 0, 4);
        assert_eq!(first.numbered_ranges().collect::<Vec<_>>(), [(0, 0..2), (2, 14..16)]);
    }
}
