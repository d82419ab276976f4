//! The strides of a block in its global tensor.

use crate::backend::BlockIndex;

/// A [`BlockIndex`] whose neighboring dims are merged if they are contiguous in the global tensor.
pub(super) struct StridedBlock {
    /// Global index of the first element.
    pub first: u64,
    /// Sizes of the block.
    pub sizes: Vec<u64>,
    /// Strides of each dim in the global tensor.
    pub strides: Vec<u64>,
}

impl StridedBlock {
    /// Merges the dims of a block.
    pub fn of(index: &BlockIndex) -> StridedBlock {
        let (mut sizes, mut strides) = (Vec::new(), Vec::new());
        let (mut first, mut stride) = (0, 1);
        // From the last dim on: a dim is merged with the next if that one is not split.
        let mut joins = false;
        for dim in (0..index.local.len()).rev() {
            let (local, global) = (index.local[dim] as u64, index.global[dim] as u64);
            first += index.offset[dim] as u64 * stride;
            match sizes.last_mut() {
                Some(size) if joins => *size *= local,
                _ => {
                    sizes.push(local);
                    strides.push(stride);
                }
            }
            joins = local == global;
            stride *= global;
        }
        if sizes.is_empty() {
            (sizes, strides) = (vec![1], vec![1]);
        }
        sizes.reverse();
        strides.reverse();
        StridedBlock { first, sizes, strides }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_dims_keep_global_indices() {
        let cases = [
            (vec![], vec![], vec![], 1),
            (vec![6], vec![6], vec![0], 1),
            (vec![2, 3, 4], vec![2, 3, 4], vec![0, 0, 0], 1),
            (vec![2, 3, 4], vec![5, 3, 4], vec![3, 0, 0], 1),
            (vec![2, 3, 4], vec![2, 6, 4], vec![0, 3, 0], 2),
            (vec![2, 3, 4], vec![2, 3, 8], vec![0, 0, 4], 2),
            (vec![2, 3, 4], vec![4, 6, 8], vec![2, 3, 4], 3),
            (vec![3, 1, 4], vec![3, 2, 4], vec![0, 1, 0], 2),
        ];
        for (local, global, offset, dims) in cases {
            let index = BlockIndex { local, global, offset };
            let strided = StridedBlock::of(&index);
            assert_eq!(strided.sizes.len(), dims, "{index:?}");
            for element in 0..index.len() {
                let (mut rest, mut found) = (element as u64, strided.first);
                for (size, stride) in strided.sizes.iter().zip(&strided.strides).rev() {
                    found += rest % size * stride;
                    rest /= size;
                }
                assert_eq!(found, index.global_index(element), "{index:?}");
            }
        }
    }
}
