//! The terms of a mean that counts only some of them.

use crate::autograd::{Binary, Value};
use crate::layout::Dims;
use meshwright_mesh::__internal::{check_sizes, local_len};

use super::{Targets, Tensor};

/// Returns the terms, with 0 in place of those whose target is ignored.
#[track_caller]
pub(super) fn terms_of_targets<S: Dims>(terms: &Tensor<S>, targets: &Targets<S>) -> Tensor<S> {
    let rank = terms.rank();
    rank.check_same(targets.rank());
    let extents = terms.local_extents();
    check_sizes(S::DIMS, ("the terms", extents), ("their targets", targets.local_extents()));
    let mut mask = rank.alloc_activation(local_len(extents));
    rank.backend().cast(targets.counted_targets().view(), mask.view_mut());
    let mask = Value::constant(rank, extents.to_vec(), mask);
    let product = terms.value().to_pointwise().binary(mask.to_pointwise(), Binary::Mul);
    Tensor::from_untyped(Value::deferred(rank, extents.to_vec(), product))
}
