//! The indices in the global tensor that this rank holds.

use crate::layout::{Dims, HasDim};

use super::{Tensor, Tokens};

impl<S: Dims> Tensor<S> {
    /// Returns the indices in the **global** tensor of this rank's elements along `dim`, in ascending order: the
    /// positions of a sequence that is distributed over `cp`, or the rows of a batch.
    ///
    /// ```
    /// # use meshwright::prelude::*;
    /// dims! { Batch @ data, Seq @ cp }
    ///
    /// let positions = meshwright::run_on("cp=2", 0, |rank| {
    ///     let x: Tensor<(Batch, Seq)> = Tensor::from_fn(rank, &[1, 8], |at| at[1] as f32);
    ///     Ok(x.global_indices(Seq))
    /// })?;
    /// assert_eq!(positions, [[0, 1, 6, 7], [2, 3, 4, 5]]);
    /// # Ok::<_, meshwright::Error>(())
    /// ```
    pub fn global_indices<D, P>(&self, dim: D) -> Vec<usize>
    where
        S: HasDim<D, P>,
    {
        let _: D = dim;
        self.local_extents()[S::DIM].positions().collect()
    }
}

impl<S: Dims> Tokens<S> {
    /// Returns the indices in the **global** tensor of this rank's elements along `dim`, as [`Tensor::global_indices`].
    pub fn global_indices<D, P>(&self, dim: D) -> Vec<usize>
    where
        S: HasDim<D, P>,
    {
        let _: D = dim;
        self.local_extents()[S::DIM].positions().collect()
    }
}
