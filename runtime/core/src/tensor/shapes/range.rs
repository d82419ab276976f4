//! A range of the elements along a dim.

use std::ops::Range;

use crate::layout::{Dims, Local, Reads, RenameDim, refuse_repeated, refuse_routed_dim};
use crate::tensor::Tensor;
use meshwright_mesh::Extent;

use super::block_copy::{Run, copy_run};
use super::{check_range, note_count};

impl<S: Dims> Tensor<S> {
    /// Returns the elements `range` of a dim that each rank holds whole, as dim `to`.
    ///
    /// Shape: `[.., D, ..] -> [.., E, ..]`.
    ///
    /// # Panics
    /// If the dim does not have these elements.
    #[track_caller]
    pub fn range<D, E: Local, P>(
        &self,
        of: D,
        range: Range<usize>,
        to: E,
    ) -> Tensor<<D as RenameDim<S, E, P>>::Out>
    where
        D: Reads<S, P> + RenameDim<S, E, P>,
    {
        let (_, _): (D, E) = (of, to);
        const {
            refuse_routed_dim::<S>(<D as Reads<S, P>>::DIM);
            refuse_repeated::<<D as RenameDim<S, E, P>>::Out>();
        }
        let dim = <D as Reads<S, P>>::DIM;
        note_count::<S>(self.rank(), S::VARIES, "the start of a range", range.start);
        note_count::<S>(self.rank(), S::VARIES, "the end of a range", range.end);
        check_range(&S::DIMS[dim], self.local_extents()[dim].global, range.start, range.end);
        self.part_of_dim(dim, range)
    }

    /// Returns the elements `range` of the dim at position `dim`.
    #[track_caller]
    pub(super) fn part_of_dim<Out: Dims>(&self, dim: usize, range: Range<usize>) -> Tensor<Out> {
        let mut extents = self.local_extents().to_vec();
        extents[dim] = Extent::whole(range.len());
        let run = Run { from: range.start, to: 0, len: range.len() };
        Tensor::from_untyped(copy_run(self.value(), dim, run, range.len(), extents))
    }
}
