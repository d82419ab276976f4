//! Counter-based random numbers.

use crate::{DryRunBackend, ViewMut};

/// Kernels that generate random numbers.
pub trait RandomOps {
    /// Writes normal deviates of mean 0 and standard deviation `std`, each a function of `key` and its global index.
    fn fill_normal(&self, key: u64, std: f32, index: &BlockIndex, out: ViewMut);

    /// Writes numbers that are uniformly distributed between `-bound` and `bound`, each a function of `key` and its
    /// global index.
    fn fill_uniform(&self, key: u64, bound: f32, index: &BlockIndex, out: ViewMut);
}

impl RandomOps for DryRunBackend {
    fn fill_normal(&self, _: u64, _: f32, _: &BlockIndex, _: ViewMut) {}
    fn fill_uniform(&self, _: u64, _: f32, _: &BlockIndex, _: ViewMut) {}
}

/// The position of a local block in its global tensor; all vectors have one entry per dim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockIndex {
    /// Sizes of the block.
    pub local: Vec<usize>,
    /// Sizes of the global tensor.
    pub global: Vec<usize>,
    /// Global index of the first element of the block.
    pub offset: Vec<usize>,
    /// Number of elements of the block before the gap, if it holds two ranges of indices of the dim.
    pub gap_at: Vec<usize>,
    /// Number of indices in the gap: 0 if it holds one range.
    pub gap: Vec<usize>,
}

impl BlockIndex {
    /// Creates the block that is the whole tensor of these sizes.
    pub fn whole(sizes: &[usize]) -> BlockIndex {
        BlockIndex::one_range(sizes.to_vec(), sizes.to_vec(), vec![0; sizes.len()])
    }

    /// Creates a block that holds one range of indices of each dim.
    pub fn one_range(local: Vec<usize>, global: Vec<usize>, offset: Vec<usize>) -> BlockIndex {
        let none = vec![0; local.len()];
        BlockIndex { local, global, offset, gap_at: none.clone(), gap: none }
    }

    /// Returns the number of elements of the block.
    pub fn len(&self) -> usize {
        self.local.iter().product()
    }

    /// Returns true if the block holds no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the global row-major index of the element with row-major index `local` in the block.
    pub fn global_index(&self, mut local: usize) -> u64 {
        let mut index = 0;
        let mut stride = 1;
        for dim in (0..self.local.len()).rev() {
            let element = local % self.local[dim];
            let skipped = if element < self.gap_at[dim] { 0 } else { self.gap[dim] };
            let position = self.offset[dim] + element + skipped;
            local /= self.local[dim];
            index += position as u64 * stride;
            stride *= self.global[dim] as u64;
        }
        index
    }
}
