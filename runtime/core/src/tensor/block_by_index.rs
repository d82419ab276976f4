//! The elements of a block by the index in the global tensor, for `from_fn`.

use std::fmt::Display;

use meshwright_mesh::__internal::local_len;
use meshwright_mesh::Extent;

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
            "`from_fn` got {first} for the first index of this rank, and {again} for the same index later: an element \
             has to follow from its index, or each rank has other numbers than one rank; `Tensor::normal` and \
             `Tensor::uniform` draw random numbers by the index"
        );
    }
    block
}
