//! The layout of a copy to another order of dims.

/// Maximum number of dims of a [`StridedCopy`].
const MAX_DIMS: usize = 5;

/// The layout of a copy of a block of several dims. Element `(i, j, ..)` goes from place `src_start + i * src[0] + j *
/// src[1] + ..` to `dst_start + i * dst[0] + j * dst[1] + ..`.
///
/// Dims of the source may have the stride 0, which repeats an element. Elements of the destination are distinct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StridedCopy {
    dims: [CopyDim; MAX_DIMS],
    len: usize,
    /// Position of the first element in the source.
    pub src_start: usize,
    /// Position of the first element in the destination.
    pub dst_start: usize,
}

/// One dim of a [`StridedCopy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyDim {
    /// Number of elements.
    pub size: usize,
    /// Distance of neighbors in the source.
    pub src: usize,
    /// Distance of neighbors in the destination.
    pub dst: usize,
}

impl StridedCopy {
    /// Creates the layout of a copy from and to the beginning of both operands. It is simplified: its dims are sorted
    /// by their stride in the destination, the largest first, and dims that are one run on both sides are merged.
    ///
    /// # Panics
    /// If there are more than five dims of several elements, or two elements have one place in the destination.
    pub fn new(dims: impl IntoIterator<Item = CopyDim>) -> StridedCopy {
        let mut dims: Vec<CopyDim> = dims.into_iter().collect();
        if dims.iter().any(|dim| dim.size == 0) {
            dims = vec![CopyDim { size: 0, src: 1, dst: 1 }];
        }
        dims.retain(|dim| dim.size != 1);
        dims.sort_by_key(|dim| std::cmp::Reverse(dim.dst));
        let mut merged: Vec<CopyDim> = Vec::with_capacity(dims.len());
        for dim in dims {
            match merged.last_mut() {
                Some(outer)
                    if outer.src == dim.size * dim.src && outer.dst == dim.size * dim.dst =>
                {
                    *outer = CopyDim { size: outer.size * dim.size, ..dim };
                }
                _ => merged.push(dim),
            }
        }
        let len = merged.len();
        assert!(len <= MAX_DIMS, "a strided copy has at most {MAX_DIMS} dims");
        let mut end = 1;
        for dim in merged.iter().rev() {
            assert!(dim.dst >= end, "elements of the destination have places of their own");
            end = dim.dst * dim.size;
        }
        let mut copy = StridedCopy {
            dims: [CopyDim { size: 1, src: 0, dst: 0 }; MAX_DIMS],
            len,
            src_start: 0,
            dst_start: 0,
        };
        copy.dims[..len].copy_from_slice(&merged);
        copy
    }

    /// Returns the layout of the copy from and to other places.
    pub fn starting_at(self, src_start: usize, dst_start: usize) -> StridedCopy {
        StridedCopy { src_start, dst_start, ..self }
    }

    /// Returns the dims of several elements, sorted by their stride in the destination, the largest first.
    pub fn dims(&self) -> &[CopyDim] {
        &self.dims[..self.len]
    }

    /// Returns the number of elements that are written.
    pub fn elements(&self) -> usize {
        self.dims().iter().map(|dim| dim.size).product()
    }

    /// Returns the layout of the copy in the other direction.
    ///
    /// # Panics
    /// If an element of the source is repeated.
    pub fn reversed(&self) -> StridedCopy {
        let dims =
            self.dims().iter().map(|dim| CopyDim { size: dim.size, src: dim.dst, dst: dim.src });
        StridedCopy::new(dims).starting_at(self.dst_start, self.src_start)
    }

    /// Returns the number of elements of the source, and of the destination, up to the last one that is used.
    pub fn ends(&self) -> [usize; 2] {
        if self.elements() == 0 {
            return [self.src_start, self.dst_start];
        }
        let last = |stride: fn(&CopyDim) -> usize| {
            self.dims().iter().map(|dim| (dim.size - 1) * stride(dim)).sum::<usize>()
        };
        [self.src_start + last(|dim| dim.src) + 1, self.dst_start + last(|dim| dim.dst) + 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dim(size: usize, src: usize, dst: usize) -> CopyDim {
        CopyDim { size, src, dst }
    }

    #[test]
    fn runs_are_merged() {
        let whole = StridedCopy::new([dim(2, 12, 12), dim(3, 4, 4), dim(1, 9, 9), dim(4, 1, 1)]);
        assert_eq!(whole.dims(), [dim(24, 1, 1)]);
        let transposed = StridedCopy::new([dim(3, 4, 1), dim(4, 1, 3)]);
        assert_eq!(transposed.dims(), [dim(4, 1, 3), dim(3, 4, 1)]);
        assert_eq!(transposed.reversed().dims(), [dim(3, 1, 4), dim(4, 3, 1)]);
        assert_eq!(transposed.ends(), [12, 12]);
    }

    #[test]
    fn empty_copies_use_nothing() {
        let copy = StridedCopy::new([dim(2, 0, 0), dim(0, 1, 1)]);
        assert_eq!((copy.elements(), copy.ends()), (0, [0, 0]));
        let one = StridedCopy::new([]);
        assert_eq!((one.elements(), one.ends()), (1, [1, 1]));
    }

    #[test]
    #[should_panic = "places of their own"]
    fn overlapping_places_are_refused() {
        StridedCopy::new([dim(2, 3, 2), dim(3, 1, 1)]);
    }
}
