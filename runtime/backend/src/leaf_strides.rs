//! Places of the elements of leaves and dims in the result of an expression.

/// Strides of a leaf along the dims of the result: 0 along those that it is repeated along.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LeafStrides {
    /// Size of each dim of the result, outermost first.
    pub sizes: Vec<usize>,
    /// Distance of neighboring elements of the leaf along each dim, in elements.
    pub strides: Vec<usize>,
}

impl LeafStrides {
    /// Returns the number of elements of the result.
    pub fn result_len(&self) -> usize {
        self.sizes.iter().product()
    }

    /// Returns the number of elements that a leaf with these strides has.
    pub fn leaf_len(&self) -> usize {
        let kept = self.sizes.iter().zip(&self.strides).filter(|(_, stride)| **stride > 0);
        kept.map(|(size, _)| size).product()
    }

    /// Returns the same strides with neighboring dims merged if both are repeated, or contiguous in the leaf.
    #[must_use]
    pub fn merged(&self) -> LeafStrides {
        let mut merged = LeafStrides { sizes: Vec::new(), strides: Vec::new() };
        for (&size, &stride) in self.sizes.iter().zip(&self.strides) {
            if size == 1 {
                continue;
            }
            match (merged.sizes.last_mut(), merged.strides.last_mut()) {
                (Some(outer), Some(outer_stride)) if *outer_stride == stride * size => {
                    *outer *= size;
                    *outer_stride = stride;
                }
                _ => {
                    merged.sizes.push(size);
                    merged.strides.push(stride);
                }
            }
        }
        if merged.sizes.is_empty() {
            merged = LeafStrides { sizes: vec![1], strides: vec![0] };
        }
        merged
    }

    /// Returns the element of the leaf that element `i` of the result reads.
    pub fn leaf_index(&self, i: usize) -> usize {
        let (mut rest, mut index) = (i, 0);
        for (size, stride) in self.sizes.iter().zip(&self.strides).rev() {
            index += rest % size * stride;
            rest /= size;
        }
        index
    }
}

/// Global positions along one dim of the result.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LeafPositions {
    /// Size of each dim of the result, outermost first.
    pub sizes: Vec<usize>,
    /// The dim.
    pub dim: usize,
    /// Position of the first element along the dim in the global tensor.
    pub offset: usize,
    /// Elements before the gap between two ranges of positions, if there is one.
    pub gap_at: usize,
    /// Positions in the gap.
    pub gap: usize,
}

impl LeafPositions {
    /// Returns the number of elements of the result.
    pub fn result_len(&self) -> usize {
        self.sizes.iter().product()
    }

    /// Returns the number of elements of the result between neighboring positions.
    pub fn inner(&self) -> usize {
        self.sizes[self.dim + 1..].iter().product()
    }

    /// Returns the global position of element `along` of the dim.
    pub fn position(&self, along: usize) -> usize {
        self.offset + along + if along < self.gap_at { 0 } else { self.gap }
    }

    /// Returns the first position after those of this rank.
    pub fn end(&self) -> usize {
        self.sizes[self.dim].checked_sub(1).map_or(self.offset, |last| self.position(last) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_strides_read_the_same_elements() {
        let cases: [(&[usize], &[usize], usize); 8] = [
            (&[2, 3, 4], &[12, 4, 1], 1),
            (&[2, 3, 4], &[0, 4, 1], 2),
            (&[2, 3, 4], &[4, 0, 1], 3),
            (&[2, 3, 4], &[3, 1, 0], 2),
            (&[2, 3, 4], &[1, 0, 0], 2),
            (&[2, 3, 4], &[0, 0, 0], 1),
            (&[2, 1, 4], &[1, 9, 2], 2),
            (&[1, 1], &[0, 5], 1),
        ];
        for (sizes, strides, dims) in cases {
            let all = LeafStrides { sizes: sizes.to_vec(), strides: strides.to_vec() };
            let merged = all.merged();
            assert_eq!(merged.sizes.len(), dims, "{all:?}");
            assert_eq!(merged.result_len(), all.result_len());
            for i in 0..all.result_len() {
                assert_eq!(merged.leaf_index(i), all.leaf_index(i), "element {i} of {all:?}");
            }
        }
    }
}
