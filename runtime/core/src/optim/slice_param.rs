//! Positions of the elements of a slice in their parameters.

use std::ops::Range;

use crate::tensor::{Extent, Unit};

/// The elements of one parameter in a [`FlatSlice`](super::FlatSlice), with their positions in the whole parameter,
/// which are the same on every mesh.
#[derive(Debug, Clone)]
pub struct SliceParam {
    path: String,
    in_slice: Range<usize>,
    /// Index of the first element in the block of this rank.
    first: usize,
    extents: Vec<Extent>,
}

impl SliceParam {
    /// Creates the elements from `first` on of a block with these extents.
    pub(super) fn new(
        path: &str,
        in_slice: Range<usize>,
        first: usize,
        extents: &[Extent],
    ) -> SliceParam {
        SliceParam { path: path.to_owned(), in_slice, first, extents: extents.to_vec() }
    }

    /// Returns the parameters of a range of the buffers of a unit.
    pub(super) fn of_range(unit: &Unit, range: &Range<usize>) -> Vec<SliceParam> {
        let params = unit.params().into_iter().filter_map(|param| {
            let own = param.range();
            let (start, end) = (own.start.max(range.start), own.end.min(range.end));
            let in_slice = start.checked_sub(range.start)?..end.checked_sub(range.start)?;
            let first = start - own.start;
            (start < end)
                .then(|| SliceParam::new(param.path(), in_slice, first, param.local_extents()))
        });
        params.collect()
    }

    /// Returns the path of the parameter.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the range of the elements in the slice. Elements of the slice that are of no parameter are zeros.
    pub fn range(&self) -> Range<usize> {
        self.in_slice.clone()
    }

    /// Returns the index, in the whole parameter, of element `element` of the slice; row-major.
    ///
    /// # Panics
    /// If the element is not in the [range](Self::range).
    pub fn global_index(&self, element: usize) -> usize {
        assert!(self.in_slice.contains(&element), "element {element} is not of `{}`", self.path);
        let mut index = self.first + element - self.in_slice.start;
        let (mut global, mut stride) = (0, 1);
        for extent in self.extents.iter().rev() {
            global += extent.index(index % extent.local) * stride;
            index /= extent.local;
            stride *= extent.global;
        }
        global
    }

    /// Returns the number of elements of the whole parameter.
    pub fn global_len(&self) -> usize {
        self.extents.iter().map(|extent| extent.global).product()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_those_of_the_whole_parameter() {
        // Rows 2 and 3 of 4, and the second half of 6 columns; without the first element.
        let extents = [Extent::part(4, 1, 2), Extent::part(6, 1, 2)];
        let param = SliceParam::new("a", 10..15, 1, &extents);
        let found: Vec<usize> = param.range().map(|element| param.global_index(element)).collect();
        assert_eq!(found, [16, 17, 21, 22, 23]);
        assert_eq!(param.global_len(), 24);
    }
}
