//! Local extents: the size and offset of a rank's block in a global tensor, dim by dim.

use crate::layout::DimInfo;

/// Local extent of one dim of a tensor: the part of the global dim that this rank holds.
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
    /// Returns the extent of a dim of which this rank holds every element.
    pub fn whole(size: usize) -> Extent {
        Extent { global: size, local: size, offset: 0, cut: (0, size) }
    }

    /// Returns part `index` of `parts` of a dim: elements `index*size/parts .. (index+1)*size/parts`.
    pub fn part(size: usize, index: usize, parts: usize) -> Extent {
        Extent::whole(size).split(index, parts)
    }

    /// Returns at most `len` elements of an unsplit extent, from element `first` on, as an unsplit extent.
    pub(crate) fn range(self, first: usize, len: usize) -> Extent {
        let offset = self.offset + first;
        let local = len.min(self.local - first);
        Extent { global: self.global, local, offset, cut: (offset, local) }
    }

    /// Returns part `index` of `parts` of an unsplit extent.
    pub(crate) fn split(self, index: usize, parts: usize) -> Extent {
        let (start, len) = self.cut;
        let offset = index * len / parts;
        let local = (index + 1) * len / parts - offset;
        Extent { local, offset: start + offset, ..self }
    }

    /// Returns the unsplit extent of which this is a part.
    pub(crate) fn unsplit(self) -> Extent {
        let (offset, local) = self.cut;
        Extent { local, offset, ..self }
    }

    /// Merges several dims, of which only the first may be split, into one.
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

/// Returns the number of elements of each dim of the global tensor.
pub(crate) fn global_sizes(extents: &[Extent]) -> Vec<usize> {
    extents.iter().map(|extent| extent.global).collect()
}

/// Returns the number of elements that this rank holds.
pub(crate) fn local_len(extents: &[Extent]) -> usize {
    extents.iter().map(|extent| extent.local).product()
}

/// Formats the dims of a shape for messages: `(Batch, Split<Seq, tp>, Hidden)`.
pub(crate) fn shape_name(dims: &[DimInfo]) -> String {
    let dims: Vec<String> = dims.iter().map(ToString::to_string).collect();
    format!("({})", dims.join(", "))
}

/// Formats sizes of dims for messages: `Batch = 8 (2 of them here, from 4 on), Seq = 512`.
pub(crate) fn named_sizes(dims: &[DimInfo], extents: &[Extent]) -> String {
    let size = |(dim, extent): (&DimInfo, &Extent)| {
        let Extent { global, local, offset, .. } = extent;
        if global == local {
            format!("{} = {global}", dim.name)
        } else {
            format!("{} = {global} ({local} of them here, from {offset} on)", dim.name)
        }
    };
    dims.iter().zip(extents).map(size).collect::<Vec<_>>().join(", ")
}

/// Checks that two operands, whose types have the same dims, have the same sizes.
///
/// # Panics
/// If a global size, or the part of a dim that this rank holds, differs.
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
    fn parts_of_a_part_cover_it() {
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
