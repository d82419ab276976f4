//! Zeros around the elements of a dim.

use crate::layout::{Dims, Local, Reads, RenameDim, refuse_repeated, refuse_routed};
use crate::tensor::Tensor;
use meshwright_mesh::Extent;

use super::block_copy::{Run, copy_run};
use super::note_count;

impl<S: Dims> Tensor<S> {
    /// Puts `before` zeros before the elements of a dim that each rank holds whole, and `after` zeros behind them: dim
    /// `to`.
    ///
    /// Shape: `[.., D, ..] -> [.., E, ..]`.
    #[track_caller]
    pub fn pad<D, E: Local, P>(
        &self,
        of: D,
        before: usize,
        after: usize,
        to: E,
    ) -> Tensor<<D as RenameDim<S, E, P>>::Out>
    where
        D: Reads<S, P> + RenameDim<S, E, P>,
    {
        let (_, _): (D, E) = (of, to);
        const {
            refuse_routed::<S>();
            refuse_repeated::<<D as RenameDim<S, E, P>>::Out>();
        }
        note_count::<S>(self.rank(), S::VARIES, "the zeros before a dim", before);
        note_count::<S>(self.rank(), S::VARIES, "the zeros behind a dim", after);
        let dim = <D as Reads<S, P>>::DIM;
        let mut extents = self.local_extents().to_vec();
        let len = extents[dim].local;
        let size = before + len + after;
        extents[dim] = Extent::whole(size);
        let run = Run { from: 0, to: before, len };
        Tensor::from_untyped(copy_run(self.value(), dim, run, size, extents))
    }
}
