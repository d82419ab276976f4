//! The strides of a block in its global tensor.

use bytemuck::{Pod, Zeroable};

use meshwright_backend::BlockIndex;

/// A [`BlockIndex`] whose neighboring dims are merged if they are contiguous in the global tensor.
pub(super) struct StridedBlock {
    /// Global index of the first element.
    pub first: u64,
    /// Sizes of the block.
    pub sizes: Vec<u64>,
    /// Strides of each dim in the global tensor.
    pub strides: Vec<u64>,
    /// The gap of each dim; empty if no dim has one.
    pub gaps: Vec<DimGap>,
}

/// The indices of the global tensor that a merged dim leaves out.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
pub(super) struct DimGap {
    /// Index along the merged dim of the first element after the gap.
    pub at: u64,
    /// Additional distance in the global tensor, beyond the stride, of elements after the gap.
    pub skip: u64,
}

impl StridedBlock {
    /// Merges the dims of a block.
    pub fn from_index(index: &BlockIndex) -> StridedBlock {
        let (mut sizes, mut strides, mut gaps) = (Vec::new(), Vec::new(), Vec::new());
        let (mut first, mut stride) = (0, 1);
        // From the last dim on: a dim is merged with the next if that one is not split.
        let mut joins = false;
        for dim in (0..index.local.len()).rev() {
            let (local, global) = (index.local[dim] as u64, index.global[dim] as u64);
            first += index.offset[dim] as u64 * stride;
            let mut gap =
                DimGap { at: index.gap_at[dim] as u64, skip: index.gap[dim] as u64 * stride };
            match (sizes.last_mut(), gaps.last_mut()) {
                // The dims merged so far are whole, so only the outermost one has a gap.
                (Some(size), Some(merged)) if joins => {
                    gap.at *= *size;
                    *size *= local;
                    *merged = gap;
                }
                _ => {
                    sizes.push(local);
                    strides.push(stride);
                    gaps.push(gap);
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
        gaps.reverse();
        if gaps.iter().all(|gap| gap.skip == 0) {
            gaps.clear();
        }
        StridedBlock { first, sizes, strides, gaps }
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
            let index = BlockIndex::one_range(local, global, offset);
            let strided = StridedBlock::from_index(&index);
            assert_eq!(strided.sizes.len(), dims, "{index:?}");
            assert_eq!(strided.gaps, []);
            check_indices(&index);
        }
    }

    #[test]
    fn joined_dims_keep_their_gaps() {
        for dim in 0..3 {
            for other in 0..3 {
                let (mut local, mut global, mut offset) =
                    (vec![2, 3, 4], vec![2, 3, 4], vec![0; 3]);
                (global[dim], offset[dim]) = (9, 2);
                if other != dim {
                    local[other] -= 1;
                }
                for gap_at in 0..=local[dim] {
                    let mut index =
                        BlockIndex::one_range(local.clone(), global.clone(), offset.clone());
                    (index.gap_at[dim], index.gap[dim]) = (gap_at, 3);
                    assert_eq!(
                        StridedBlock::from_index(&index).gaps.len(),
                        StridedBlock::from_index(&index).sizes.len()
                    );
                    check_indices(&index);
                }
            }
        }
    }

    /// Checks the index of each element as the kernels compute it.
    fn check_indices(index: &BlockIndex) {
        let StridedBlock { first, sizes, strides, gaps } = StridedBlock::from_index(index);
        for element in 0..index.len() {
            let (mut rest, mut found) = (element as u64, first);
            for dim in (0..sizes.len()).rev() {
                let along = rest % sizes[dim];
                found += along * strides[dim];
                found += gaps.get(dim).filter(|gap| along >= gap.at).map_or(0, |gap| gap.skip);
                rest /= sizes[dim];
            }
            assert_eq!(found, index.global_index(element), "{index:?}");
        }
    }
}
