//! Values by the index in the global tensor: those of `from_fn`, and the indices that this rank holds.

use std::fmt::Display;

use crate::layout::{Dims, HasDim};
use crate::mesh::{Extent, local_len};

use super::{Tensor, Tokens};

impl<S: Dims> Tensor<S> {
    /// Returns the indices in the **global** tensor of this rank's elements along `dim`, in ascending order: the positions of a
    /// sequence of which the ranks of `cp` hold parts, or the rows of a batch.
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

/// Returns the elements of a block, each from its index in the global tensor. `bits` tells elements apart.
///
/// # Panics
/// If another call of `element` with the same index returns another element.
#[track_caller]
pub(super) fn block_by_index<T: Copy + Display>(
    extents: &[Extent],
    element: impl Fn(&[usize]) -> T,
    bits: fn(T) -> u32,
) -> Vec<T> {
    let mut index = vec![0; extents.len()];
    let mut element_at = |mut rest: usize| {
        for (position, extent) in index.iter_mut().zip(extents).rev() {
            *position = extent.index(rest % extent.local);
            rest /= extent.local;
        }
        element(&index)
    };
    let block: Vec<T> = (0..local_len(extents)).map(&mut element_at).collect();
    if let Some(first) = block.first() {
        let again = element_at(0);
        assert!(
            bits(*first) == bits(again),
            "`from_fn` got {first} for the first index of this rank, and {again} for the same index later: an element has \
             to follow from its index, or each rank has other numbers than one rank; `Tensor::normal` and `Tensor::uniform` \
             draw random numbers by the index"
        );
    }
    block
}
