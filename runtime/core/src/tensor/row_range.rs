//! Rows of a micro-batch, for which values are made.

use std::panic::Location;

use crate::context::{MicroBatch, Rank, extents_of};
use crate::layout::{AxisSet, Dims, Shape};
use meshwright_mesh::__internal::{local_len, shape_name};
use meshwright_mesh::Extent;

/// Returns the rank of micro-batch `index` of `count` and the extents of its rows on this rank, which `len` elements,
/// such as `kind`, of a tensor of `sizes` are.
///
/// # Panics
/// If the micro-batch has other rows on this rank.
#[track_caller]
pub(super) fn rows_of_micro_batch<S: Shape>(
    rank: &Rank,
    sizes: &[usize],
    [index, count]: [usize; 2],
    len: usize,
    kind: &str,
) -> (Rank, Vec<Extent>) {
    const { rows_are_whole::<S>() };
    assert!(index < count, "there is no micro-batch {index} of {count}");
    let rank = &rank.with_whole_batch();
    let mut extents = extents_of::<S>(rank, sizes);
    let (rows, home) = (extents[0].global, S::DIMS[0].home);
    let start = |index: usize| (index * rows).div_ceil(count);
    let all = Extent::whole(rows).sub_range(start(index), start(index + 1) - start(index));
    let own = all.split(rank.position(home), rank.degree_of(home));
    extents[0] = own.sub_range(0, usize::MAX);
    assert!(
        len == local_len(&extents),
        "a block of {len} {kind} is not this rank's part of micro-batch {index} of {count} of {sizes:?}: it has {} \
         rows, as `rows_of_rank` returns them",
        own.local
    );
    let name = || format!("the number of the micro-batch of {}", shape_name(S::DIMS));
    let place = [index, count].map(|number| number as u32);
    rank.declared_values().note_elements(name, AxisSet::NONE, Location::caller(), &place);
    (rank.with_micro_batch(MicroBatch::new(&S::DIMS[0], extents[0])), extents)
}

/// Returns the rank of a micro-batch and the extents of its rows: those in `len` elements, such as `kind`, of this
/// rank's block of `sizes`, from row `first` on.
///
/// # Panics
/// If the elements are not whole rows, or more than follow row `first`.
#[track_caller]
pub(super) fn rows_of_block<S: Shape>(
    rank: &Rank,
    sizes: &[usize],
    first: usize,
    len: usize,
    kind: &str,
) -> (Rank, Vec<Extent>) {
    const { rows_are_whole::<S>() };
    let rank = &rank.with_whole_batch();
    let mut extents = extents_of::<S>(rank, sizes);
    let row = local_len(&extents[1..]);
    assert!(
        row > 0,
        "the rows of {sizes:?} have no elements on this rank, so the number of rows does not follow from `block`: use \
         `from_block`, or a sequence of at least as many tokens as ranks split it"
    );
    let rows = len / row;
    assert!(
        rows * row == len && first.checked_add(rows).is_some_and(|end| end <= extents[0].local),
        "a block of {len} {kind} is not made of the rows of {sizes:?} from row {first} on"
    );
    let name = || format!("the first row and the number of rows of {}", shape_name(S::DIMS));
    let range = [first, rows].map(|number| number as u32);
    let declared = rank.declared_values();
    declared.note_elements(name, S::DIMS[0].home, Location::caller(), &range);
    extents[0] = extents[0].sub_range(first, rows);
    let micro_batch = MicroBatch::new(&S::DIMS[0], extents[0]);
    (rank.with_micro_batch(micro_batch), extents)
}

/// Compiles if the first dim of `S` counts rows, the same rows on all ranks of a model axis.
const fn rows_are_whole<S: Dims>() {
    assert!(
        !S::DIMS.is_empty() && S::DIMS[0].split.is_empty(),
        "the rows of a micro-batch are the first dim, and not split: make it of whole rows, `Tokens<(Batch, Seq)>`, \
         and split what is computed from them, `.slice(Batch, Tp)`"
    );
}
