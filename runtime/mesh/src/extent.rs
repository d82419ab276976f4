//! Local extents: the size and offset of a rank's block in a global tensor, dim by dim.

use std::ops::Range;

use crate::DimInfo;

/// Local extent of one dim of a tensor: the part of the global dim that this rank holds, in ascending order.
///
/// It is one range of indices or, of a dim declared `@ cp`, two with a gap between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Elements of the global tensor along the dim.
    pub global: usize,
    /// Elements that this rank holds.
    pub local: usize,
    /// Index in the global tensor of the first element that this rank holds.
    pub offset: usize,
    /// The gap between the two ranges.
    gap: Gap,
    /// The elements that a [`Split`](crate::Split) of the dim cuts: the whole dim, the part that the home of
    /// the dim leaves to this rank, or the rows of a micro-batch.
    cut: Ranges,
    /// Number of the routing that the rows of a [`Routed`](crate::Routed) dim follow from; 0 of all other dims.
    routing: u64,
}

impl Extent {
    /// Returns the extent of a dim that this rank holds whole.
    pub fn whole(size: usize) -> Extent {
        Extent::unsplit_at(size, Ranges::one_range(0, size))
    }

    /// Returns part `index` of `parts` of a dim: elements `index*size/parts .. (index+1)*size/parts`.
    pub fn part(size: usize, index: usize, parts: usize) -> Extent {
        Extent::whole(size).split(index, parts)
    }

    /// Returns part `index` of `parts` of a dim in zig-zag order, as an unsplit extent: of twice as many chunks,
    /// numbers `index` and `2*parts - 1 - index`.
    ///
    /// Causal attention is equal work for all of these parts, since an early chunk of queries, which reads few keys, is
    /// paired with a late one.
    #[doc(hidden)]
    pub fn zig_zag(size: usize, index: usize, parts: usize) -> Extent {
        let start = |chunk: usize| chunk * size / (2 * parts);
        let (early, late) = (index, 2 * parts - 1 - index);
        let (begin, end) = (start(early), start(early + 1));
        let gap = Gap { at: end - begin, len: start(late) - end };
        let len = end - begin + start(late + 1) - start(late);
        Extent::unsplit_at(size, Ranges::new(begin, len, gap))
    }

    /// Returns the extent of the `local` rows that routing number `routing` has brought to this rank, of `global` on
    /// all ranks.
    #[doc(hidden)]
    pub fn of_routing(routing: u64, global: usize, local: usize) -> Extent {
        Extent { routing, ..Extent::unsplit_at(global, Ranges::one_range(0, local)) }
    }

    /// Returns the number of the routing that the rows follow from; 0 if the dim is not
    /// [`Routed`](crate::Routed).
    #[doc(hidden)]
    pub fn routing(&self) -> u64 {
        self.routing
    }

    /// Returns the index in the global tensor of element `local` of this rank.
    #[inline]
    pub fn index(&self, local: usize) -> usize {
        self.offset + self.gap.skip(local)
    }

    /// Iterates over the indices in the global tensor of this rank's elements, in ascending order.
    pub fn positions(&self) -> impl Iterator<Item = usize> + Clone + use<> {
        let extent = *self;
        (0..extent.local).map(move |local| extent.index(local))
    }

    /// Returns the elements of this extent in each of the rows of a global tensor.
    #[doc(hidden)]
    pub fn of_rows(&self, rows: &[u32]) -> Vec<u32> {
        let own = |row: &[u32]| self.positions().map(|at| row[at]).collect::<Vec<_>>();
        rows.chunks(self.global.max(1)).flat_map(own).collect()
    }

    /// Returns the number of elements before the gap, and the number of indices in the gap: `local` and 0 for one
    /// range.
    pub fn gap(&self) -> (usize, usize) {
        (self.gap.at, self.gap.len)
    }

    /// Returns the number of elements of this rank with a global index below `index`.
    #[doc(hidden)]
    pub fn count_before(&self, index: usize) -> usize {
        let count = |range: Range<usize>| index.clamp(range.start, range.end) - range.start;
        self.ranges().into_iter().map(count).sum()
    }

    /// Returns the ranges of indices that this rank holds: two with a gap between them, or one and an empty one.
    pub fn ranges(&self) -> [Range<usize>; 2] {
        let Gap { at, len } = self.gap;
        let (middle, end) = (self.offset + at, self.offset + self.local + len);
        [self.offset..middle, middle + len..end]
    }

    /// Returns true if this rank holds one range of indices.
    pub fn is_one_range(&self) -> bool {
        self.gap.len == 0
    }

    /// Returns at most `len` elements of an unsplit extent, from element `first` on, as an unsplit extent.
    #[doc(hidden)]
    pub fn sub_range(self, first: usize, len: usize) -> Extent {
        Extent::unsplit_at(self.global, self.held_ranges().part(first, len.min(self.local - first)))
    }

    /// Returns an unsplit extent of two elements that contains this one-element extent; `None` if the dim has one
    /// element.
    #[doc(hidden)]
    pub fn with_neighbor(self) -> Option<Extent> {
        let first = self.offset.min(self.global.checked_sub(2)?);
        Some(Extent::unsplit_at(self.global, Ranges::one_range(first, 2)))
    }

    /// Returns part `index` of `parts` of an unsplit extent.
    #[doc(hidden)]
    pub fn split(self, index: usize, parts: usize) -> Extent {
        let start = index * self.cut.len / parts;
        let len = (index + 1) * self.cut.len / parts - start;
        let Ranges { offset, len, gap } = self.cut.part(start, len);
        Extent { local: len, offset, gap, ..self }
    }

    /// Returns the unsplit extent that contains this part.
    #[doc(hidden)]
    pub fn unsplit(self) -> Extent {
        Extent::unsplit_at(self.global, self.cut)
    }

    /// Merges several dims into one. Only the first may be split.
    pub fn flattened(dims: &[Extent]) -> Extent {
        let inner: usize = dims[1..].iter().map(|extent| extent.global).product();
        let first = dims[0];
        let Ranges { offset, len, gap } = first.held_ranges().scaled_by(inner);
        Extent {
            global: first.global * inner,
            local: len,
            offset,
            gap,
            cut: first.cut.scaled_by(inner),
            routing: first.routing,
        }
    }

    /// Returns the extent of the first of two dims that this dim is parted into, the second of `inner` elements; `None`
    /// if a range of indices does not begin and end between groups of `inner` elements.
    #[doc(hidden)]
    pub fn parted(self, inner: usize) -> Option<Extent> {
        let Ranges { offset, len, gap } = self.held_ranges().divided_by(inner)?;
        let global = quotient(self.global, inner)?;
        Some(Extent { global, local: len, offset, gap, cut: self.cut.divided_by(inner)?, ..self })
    }

    fn unsplit_at(global: usize, held: Ranges) -> Extent {
        let Ranges { offset, len, gap } = held;
        Extent { global, local: len, offset, gap, cut: held, routing: 0 }
    }

    fn held_ranges(&self) -> Ranges {
        Ranges { offset: self.offset, len: self.local, gap: self.gap }
    }
}

/// Ascending indices: one range, or two with a gap between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ranges {
    /// First index.
    offset: usize,
    /// Number of indices.
    len: usize,
    gap: Gap,
}

/// The indices that are left out between two ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Gap {
    /// Number of indices before the gap: all, if there is none.
    at: usize,
    /// Number of indices in the gap.
    len: usize,
}

impl Gap {
    /// Returns the distance of element `local` from the first one.
    #[inline]
    fn skip(self, local: usize) -> usize {
        if local < self.at { local } else { local + self.len }
    }
}

impl Ranges {
    fn one_range(offset: usize, len: usize) -> Ranges {
        Ranges { offset, len, gap: Gap { at: len, len: 0 } }
    }

    /// Returns `len` indices from `offset` on, with a gap. A gap at either end is dropped, so that equal indices are
    /// equal values.
    fn new(offset: usize, len: usize, gap: Gap) -> Ranges {
        match gap {
            Gap { at: 0, len: skipped } => Ranges::one_range(offset + skipped, len),
            Gap { len: 0, .. } => Ranges::one_range(offset, len),
            Gap { at, .. } if at >= len => Ranges::one_range(offset, len),
            gap => Ranges { offset, len, gap },
        }
    }

    /// Returns `len` of these indices, from number `start` on.
    fn part(self, start: usize, len: usize) -> Ranges {
        if start >= self.gap.at {
            return Ranges::one_range(self.offset + self.gap.skip(start), len);
        }
        let gap = Gap { at: self.gap.at - start, len: self.gap.len };
        Ranges::new(self.offset + start, len, gap)
    }

    /// Returns the indices of rows of `inner` elements each.
    fn scaled_by(self, inner: usize) -> Ranges {
        let gap = Gap { at: self.gap.at * inner, len: self.gap.len * inner };
        Ranges { offset: self.offset * inner, len: self.len * inner, gap }
    }

    /// Returns the rows of `inner` elements each that these are the indices of, if they are those of whole rows.
    fn divided_by(self, inner: usize) -> Option<Ranges> {
        let gap = Gap { at: quotient(self.gap.at, inner)?, len: quotient(self.gap.len, inner)? };
        let [offset, len] = [quotient(self.offset, inner)?, quotient(self.len, inner)?];
        Some(Ranges { offset, len, gap })
    }
}

/// Returns `n / by` if nothing remains.
fn quotient(n: usize, by: usize) -> Option<usize> {
    (by > 0 && n.is_multiple_of(by)).then(|| n / by)
}

/// Returns the number of elements of each dim of the global tensor.
pub fn global_sizes(extents: &[Extent]) -> Vec<usize> {
    extents.iter().map(|extent| extent.global).collect()
}

/// Returns the number of elements that this rank holds.
pub fn local_len(extents: &[Extent]) -> usize {
    extents.iter().map(|extent| extent.local).product()
}

/// Formats the dims of a shape for messages: `(Batch, Split<Seq, tp>, Hidden)`.
pub fn shape_name(dims: &[DimInfo]) -> String {
    let dims: Vec<String> = dims.iter().map(ToString::to_string).collect();
    format!("({})", dims.join(", "))
}

/// Formats sizes of dims for messages: `Batch = 8 (2 of them here, from 4 on), Seq = 512`.
pub fn named_sizes(dims: &[DimInfo], extents: &[Extent]) -> String {
    let size = |(dim, extent): (&DimInfo, &Extent)| {
        let Extent { global, local, offset, .. } = extent;
        if extent.routing != 0 {
            let routing = extent.routing;
            format!("{} = {global} ({local} of them here, of routing {routing})", dim.name)
        } else if global == local {
            format!("{} = {global}", dim.name)
        } else if extent.is_one_range() {
            format!("{} = {global} ({local} of them here, from {offset} on)", dim.name)
        } else {
            let [first, second] = extent.ranges();
            format!("{} = {global} ({local} of them here, {first:?} and {second:?})", dim.name)
        }
    };
    dims.iter().zip(extents).map(size).collect::<Vec<_>>().join(", ")
}

/// Checks that two operands, whose types have the same dims, have the same sizes.
///
/// # Panics
/// If a global size, or the part of a dim that this rank holds, differs.
#[track_caller]
pub fn check_sizes(dims: &[DimInfo], left: (&str, &[Extent]), right: (&str, &[Extent])) {
    assert!(
        left.1 == right.1,
        "{} has {}, but {} has {}: make both of the same sizes, and of the same micro-batch (`x.like(|at| ..)` makes \
         one that fits `x`)",
        left.0,
        named_sizes(dims, left.1),
        right.0,
        named_sizes(dims, right.1)
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AxisSet;

    #[test]
    fn parts_of_a_part_cover_it() {
        for (size, outer, inner) in [(8, 2, 2), (9, 2, 2), (7, 3, 2), (5, 2, 4)] {
            for index in 0..outer {
                let held = Extent::part(size, index, outer).sub_range(0, usize::MAX);
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

    /// Every size, number of zig-zag parts, number of parts of each of them, and range of a part, against lists of
    /// indices.
    #[test]
    fn zig_zag_parts_are_as_listed() {
        for (size, ranks) in (0..=33).flat_map(|size| (1..=5).map(move |ranks| (size, ranks))) {
            let chunk = |at: usize| at * size / (2 * ranks)..(at + 1) * size / (2 * ranks);
            let mut all: Vec<usize> = Vec::new();
            for rank in 0..ranks {
                let held = Extent::zig_zag(size, rank, ranks);
                let expected: Vec<usize> = chunk(rank).chain(chunk(2 * ranks - 1 - rank)).collect();
                check(&held, size, &expected);
                assert_eq!(held.unsplit(), held);
                all.extend(&expected);
                for parts in 1..=4 {
                    let mut covered: Vec<usize> = Vec::new();
                    for part in (0..parts).map(|part| held.split(part, parts)) {
                        let end = covered.len() + part.local;
                        check(&part, size, &expected[covered.len()..end]);
                        assert_eq!(held.count_before(part.offset), covered.len());
                        assert_eq!(part.unsplit(), held);
                        // The part of another rank follows from that of this one.
                        assert_eq!(part.split(0, parts), held.split(0, parts));
                        covered.extend(part.positions());
                    }
                    assert_eq!(covered, expected);
                }
                for first in 0..=held.local {
                    for len in [0, 1, 2, held.local] {
                        let end = held.local.min(first + len);
                        check(&held.sub_range(first, len), size, &expected[first..end]);
                    }
                }
                let flat = Extent::flattened(&[held, Extent::whole(3)]);
                assert_eq!(flat.parted(3), Some(held));
                assert!(held.local == 0 || Extent { local: 1, ..flat }.parted(3).is_none());
                let expected: Vec<usize> =
                    expected.iter().flat_map(|row| (0..3).map(move |col| row * 3 + col)).collect();
                check(&flat, size * 3, &expected);
            }
            all.sort_unstable();
            assert_eq!(all, (0..size).collect::<Vec<_>>());
        }
    }

    fn check(extent: &Extent, global: usize, expected: &[usize]) {
        assert_eq!((extent.global, extent.local), (global, expected.len()));
        assert_eq!(extent.positions().collect::<Vec<_>>(), expected, "{extent:?}");
        let of_ranges: Vec<usize> = extent.ranges().into_iter().flatten().collect();
        assert_eq!(of_ranges, expected, "{extent:?}");
        let has_gap = expected.windows(2).any(|pair| pair[1] != pair[0] + 1);
        assert_eq!(extent.is_one_range(), !has_gap, "{extent:?}");
        assert!(expected.is_empty() || extent.offset == expected[0], "{extent:?}");
        for index in 0..=global {
            let before = expected.iter().filter(|held| **held < index).count();
            assert_eq!(extent.count_before(index), before, "{extent:?} {index}");
        }
    }

    #[test]
    fn messages_name_both_ranges() {
        const SEQ: DimInfo = DimInfo {
            name: "Seq",
            key: std::any::TypeId::of::<()>,
            split: AxisSet::NONE,
            home: AxisSet::NONE,
            is_routed: false,
        };
        let sizes = named_sizes(&[SEQ], &[Extent::zig_zag(8, 0, 2)]);
        assert_eq!(sizes, "Seq = 8 (4 of them here, 0..2 and 6..8)");
    }
}
