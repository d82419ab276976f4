//! Stochastic rounding of optimizer state: the random bits of an element follow from its index in the whole parameter.

use std::ops::Range;

use crate::ops::random::BlockIndex;
use crate::{DType, ViewMut};

/// Consecutive elements of one parameter, whose states are rounded to bf16 stochastically.
///
/// Of two neighboring bf16, the new state becomes the upper one with the probability of its distance from the lower
/// one, so that it is kept on average; a bf16 stays as it is. The bits of state `s` of the element with global index
/// `i` are those of the Philox draw of `key` and the counter (`i / 4`, `s / 2`): of its word `i % 4`, the lower half
/// for even `s`, and the upper half for odd. The sum of them and the bits of the f32 is cut to the upper half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateRounding {
    /// Number of elements.
    pub len: usize,
    /// Key of the parameter and the step.
    pub key: u64,
    /// Global index of the first element of the block that this rank has of the parameter.
    pub first: u64,
    /// Index in that block of the first of these elements.
    pub start: u64,
    /// Number of elements that are contiguous in the parameter: a row of the block.
    pub row: u64,
    /// Distance of two rows in the parameter; `row` if the block is contiguous.
    pub stride: u64,
}

impl StateRounding {
    /// Creates the rounding of `len` elements that are contiguous in the parameter, from index `first` on.
    pub fn contiguous(key: u64, first: u64, len: usize) -> StateRounding {
        StateRounding { len, key, first, start: 0, row: 1, stride: 1 }
    }

    /// Returns the rounding of the elements `range` of a block, in as many parts as needed: several if the block is
    /// split in more than one dim other than the first.
    ///
    /// # Panics
    /// If the block has a gap, which no parameter has.
    pub fn of_block(key: u64, block: &BlockIndex, range: Range<usize>) -> Vec<StateRounding> {
        assert!(block.gap.iter().all(|gap| *gap == 0), "a parameter holds one range of each dim");
        // Sizes and strides from the last dim on; a dim is merged with the next if that one is not split.
        let mut dims: Vec<(usize, u64)> = Vec::new();
        let (mut first, mut stride, mut joins) = (0, 1, false);
        for (dim, local) in block.local.iter().enumerate().rev() {
            first += block.offset[dim] as u64 * stride;
            match dims.last_mut() {
                Some((size, _)) if joins => *size *= local,
                _ => dims.push((*local, stride)),
            }
            joins = *local == block.global[dim];
            stride *= block.global[dim] as u64;
        }
        let [(row, _), (rows, stride), outer @ ..] = dims.as_slice() else {
            let start = range.start as u64;
            let whole = StateRounding::contiguous(key, first, range.len());
            return vec![StateRounding { start, ..whole }];
        };
        let (row, plane) = (*row as u64, rows * row);
        let mut parts = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let (mut index, mut first) = (at / plane, first);
            for (size, stride) in outer {
                first += (index % size) as u64 * stride;
                index /= size;
            }
            let end = range.end.min((at / plane + 1) * plane);
            let start = (at % plane) as u64;
            parts.push(StateRounding { len: end - at, key, first, start, row, stride: *stride });
            at = end;
        }
        parts
    }

    /// Returns the index in the whole parameter of one of these elements.
    pub fn global_index(&self, element: usize) -> u64 {
        let index = self.start + element as u64;
        if self.row == self.stride {
            return self.first + index;
        }
        self.first + index / self.row * self.stride + index % self.row
    }

    /// Returns the number of elements from `element` on that are contiguous in the parameter.
    pub fn contiguous_from(&self, element: usize) -> usize {
        let left = self.len - element;
        if self.row == self.stride {
            return left;
        }
        left.min((self.row - (self.start + element as u64) % self.row) as usize)
    }

    /// Returns the rounding of some of the elements.
    pub fn part(&self, range: Range<usize>) -> StateRounding {
        StateRounding { len: range.len(), start: self.start + range.start as u64, ..*self }
    }
}

/// Checks that `rounding` covers states of `len` elements if they are bf16, and is empty if they are f32.
///
/// # Panics
/// If it does not: a fault of the calling code.
pub fn check_rounding(states: &[&ViewMut<'_>], rounding: &[StateRounding], len: usize) {
    let Some(first) = states.first() else { return };
    let dtype = first.dtype();
    assert!(
        states.iter().all(|state| state.dtype() == dtype),
        "states of an update have one dtype"
    );
    assert!(matches!(dtype, DType::F32 | DType::Bf16), "optimizer state is f32 or bf16");
    let covered: usize = rounding.iter().map(|part| part.len).sum();
    let expected = if dtype == DType::Bf16 { len } else { 0 };
    assert_eq!(covered, expected, "the rounding of a state of {dtype} covers its elements");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks that are whole, or split along the first, the last, a middle, and several dims.
    fn blocks() -> Vec<BlockIndex> {
        [
            (vec![], vec![], vec![]),
            (vec![6], vec![6], vec![0]),
            (vec![3], vec![6], vec![3]),
            (vec![2, 3, 4], vec![5, 3, 4], vec![3, 0, 0]),
            (vec![2, 3, 4], vec![2, 6, 4], vec![0, 3, 0]),
            (vec![2, 3, 4], vec![2, 3, 8], vec![0, 0, 4]),
            (vec![2, 3, 4], vec![4, 6, 8], vec![2, 3, 4]),
            (vec![2, 1, 2, 3], vec![2, 4, 4, 6], vec![0, 1, 2, 3]),
        ]
        .map(|(local, global, offset)| BlockIndex::one_range(local, global, offset))
        .to_vec()
    }

    #[test]
    fn parts_have_the_global_indices_of_their_elements() {
        for block in blocks() {
            let len = block.len();
            for start in 0..len {
                for end in start..=len {
                    let parts = StateRounding::of_block(7, &block, start..end);
                    let found: Vec<u64> = parts
                        .iter()
                        .flat_map(|part| (0..part.len).map(|element| part.global_index(element)))
                        .collect();
                    let expected: Vec<u64> =
                        (start..end).map(|element| block.global_index(element)).collect();
                    assert_eq!(found, expected, "{block:?}, {start}..{end}");
                }
            }
        }
    }

    #[test]
    fn runs_are_contiguous_and_parts_of_parts_keep_their_indices() {
        for block in blocks() {
            for part in StateRounding::of_block(7, &block, 0..block.len()) {
                let mut at = 0;
                while at < part.len {
                    let run = part.contiguous_from(at);
                    for element in 0..run {
                        let expected = part.global_index(at) + element as u64;
                        assert_eq!(part.global_index(at + element), expected, "{block:?}");
                    }
                    at += run;
                }
                for start in 0..part.len {
                    let rest = part.part(start..part.len);
                    assert_eq!(rest.global_index(0), part.global_index(start), "{block:?}");
                }
            }
        }
    }
}
