//! Operations on the shape of a tensor: dims in another order, by other names, joined, parted, added and left out.

mod block_copy;
mod concat;
mod cut;
mod expand;
mod gather_as;
mod pad;
mod permute;
mod range;
mod regroup;
mod select;

use std::panic::Location;

use crate::context::Rank;
use crate::layout::{AxisSet, DimInfo, Dims};
use meshwright_mesh::__internal::shape_name;

pub use cut::{CutNames, PartSizes};
pub(super) use permute::{copied, strides};

/// Records a count or an index that an operation on a tensor with these dims takes, and that has to be the same on
/// ranks with equal positions along `varies`.
#[track_caller]
pub(super) fn note_count<S: Dims>(rank: &Rank, varies: AxisSet, what: &str, count: usize) {
    let name = || format!("{what} of a tensor shaped {}", shape_name(S::DIMS));
    let halves = [count as u32, (count >> 32) as u32];
    rank.declared_values().note_elements(name, varies, Location::caller(), &halves);
    rank.segments().note_numbers(&halves);
}

/// Checks that a dim has the elements `start .. end`.
///
/// # Panics
/// If it has not: on every rank, since all know the size.
#[track_caller]
fn check_range(info: &DimInfo, size: usize, start: usize, end: usize) {
    assert!(
        start <= end && end <= size,
        "dim `{}` has {size} elements, so it has no elements {start}..{end}: give a range within 0..{size}",
        info.name
    );
}

/// Returns the position of a dim among others, whatever splits it.
pub(super) fn position_of(dim: &DimInfo, dims: &[DimInfo]) -> Option<usize> {
    dims.iter().position(|other| (other.key)() == (dim.key)())
}
