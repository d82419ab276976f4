//! Targets of contrastive losses: each sample among all samples of the batch.

use std::ops::Range;
use std::panic::Location;

use crate::context::{parts_along_home, scope};
use crate::layout::{Dim, Dims, Local, Whole};
use meshwright_comm::Site;

use super::{Targets, Tensor, Tokens};

impl<B> Tokens<(B,)>
where
    (B,): Dims,
{
    /// Returns the targets of scores of each sample and all samples of the batch, whose target is the sample itself:
    /// the column of its row. In a micro-batch the columns are its samples on all ranks, in the order of the global
    /// batch, as [`gather_as`](Tensor::gather_as) puts them.
    ///
    /// ```
    /// # use meshwright::prelude::*;
    /// # dims! { Batch @ data, Others, Hidden }
    /// /// The loss of finding the own text of each image among all texts of the batch (Radford et al., 2021).
    /// fn contrastive(
    ///     loss: &CrossEntropy<Others>,
    ///     images: &Tensor<(Batch, Hidden)>,
    ///     texts: &Tensor<(Batch, Hidden)>,
    /// ) -> Loss<(Batch,)> {
    ///     let scores = images.dot(&texts.gather_as(Batch, Others), Hidden, ());
    ///     loss.forward(&scores, &Targets::diagonal(&scores))
    /// }
    /// ```
    ///
    /// In a micro-batch it is one small all-gather over the axes of the batch.
    ///
    /// # Panics
    /// If there are more or fewer columns than samples.
    #[track_caller]
    pub fn diagonal<E>(scores: &Tensor<(B, E)>) -> Targets<(B,)>
    where
        B: Dim + Whole,
        E: Local,
        (B, E): Dims,
    {
        let (rank, extents) = (scores.rank(), scores.local_extents());
        let (rows, columns, home) = (extents[0], extents[1].global, <(B,)>::DIMS[0].home);
        let site =
            Site::new(scope::current_or("Targets::diagonal")).at_location(Location::caller());
        let parts = parts_along_home(rank, home, &rows, &site);
        let all = || parts.iter().flatten();
        let samples: usize = all().map(Range::len).sum();
        assert!(
            samples == columns,
            "`Targets::diagonal` of scores with {columns} columns for {samples} samples: each sample has a column, as \
             `y.gather_as(Batch, Others)` gives it one; for other columns, `Targets::from_fn` takes the index of each \
             sample"
        );
        // Rows of a micro-batch are some of the global batch: a column is the number of samples before the own one.
        let before =
            |row: usize| all().map(move |range| row.clamp(range.start, range.end) - range.start);
        let own: Vec<u32> = rows.positions().map(|row| before(row).sum::<usize>() as u32).collect();
        Tokens::declared(rank, vec![rows], &own)
    }
}
