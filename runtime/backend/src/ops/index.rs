//! Elements by their index along a dim, indices of the largest elements, and running sums.

use crate::{DryRunBackend, MiddleDim, View, ViewMut};

/// Kernels that read and write elements of a dim by their index.
pub trait IndexOps {
    /// Computes `out[o, j, i] = x[o, indices[o, j], i]`, and 0 for indices that are not held. `indices` are `u32`, `x`
    /// and `out` of one type `T`.
    fn take_elements(&self, shape: &IndexedDim, indices: View, x: View, out: ViewMut);
    /// Computes `out[o, indices[o, j], i] += x[o, j, i]`, in the order of `j`, and nothing for indices that are not
    /// held. `indices` are `u32`, `out` is f32.
    fn add_elements(&self, shape: &IndexedDim, indices: View, x: View, out: ViewMut);
    /// Writes the positions along a dim of the `k` largest elements, from the largest one on, as `u32` shaped `[outer,
    /// k, inner]`. Of equal elements the one with the lower position is the larger one, and NaN is larger than all
    /// numbers.
    fn largest(&self, dim: MiddleDim, k: usize, x: View, positions: ViewMut);
    /// Computes sums of all elements along a dim up to each one, or with `from_end` from each one on. `x` and `y` are
    /// of one type `T`.
    fn running_sum(&self, dim: MiddleDim, from_end: bool, x: View, y: ViewMut);
}

impl IndexOps for DryRunBackend {
    fn take_elements(&self, _: &IndexedDim, _: View, _: View, _: ViewMut) {}
    fn add_elements(&self, _: &IndexedDim, _: View, _: View, _: ViewMut) {}
    fn largest(&self, _: MiddleDim, _: usize, _: View, _: ViewMut) {}
    fn running_sum(&self, _: MiddleDim, _: bool, _: View, _: ViewMut) {}
}

/// A dim whose elements are read or written by their index in the global dim, in a tensor that is seen as `[outer, len,
/// inner]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexedDim {
    /// Product of the sizes of the dims before.
    pub outer: usize,
    /// Elements of the dim that are held.
    pub len: usize,
    /// Product of the sizes of the dims after.
    pub inner: usize,
    /// Indices for each of `outer`.
    pub count: usize,
    /// True if there is an index for each of `inner`, too: indices are shaped `[outer, count, inner]`, else `[outer,
    /// count]`.
    pub is_elementwise: bool,
    /// Index of the first element that is held.
    pub first: usize,
    /// Elements before the gap in the indices that are held, and indices in it.
    pub gap: [usize; 2],
}

impl IndexedDim {
    /// Returns the place among the held elements of the one with this index.
    #[inline]
    pub fn place(&self, index: u32) -> Option<usize> {
        let at = (index as usize).checked_sub(self.first)?;
        let [before, skipped] = self.gap;
        let place =
            if at < before { at } else { at.checked_sub(skipped).filter(|at| *at >= before)? };
        (place < self.len).then_some(place)
    }

    /// Returns the number of indices.
    pub fn indices(&self) -> usize {
        self.outer * self.count * if self.is_elementwise { self.inner } else { 1 }
    }

    /// Checks the operands: indices, elements by their index, and elements in the order of indices.
    ///
    /// # Panics
    /// If their sizes differ from these.
    #[track_caller]
    pub fn check(&self, indices: usize, held: usize, ordered: usize) {
        let expected = [
            self.indices(),
            self.outer * self.len * self.inner,
            self.outer * self.count * self.inner,
        ];
        assert_eq!([indices, held, ordered], expected, "operands fit {self:?}");
    }
}
