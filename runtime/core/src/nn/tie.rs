//! Tied weights: one parameter used by two layers.

use crate::layout::{Axis, Dims, Split, Whole};
use crate::tensor::Param;

use super::{Embedding, LmHead, Plain, VocabSplit};

/// A layer with a single weight that another layer can share: `#[tied(embed)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no single weight that could be tied",
    label = "cannot be tied",
    note = "`Embedding`, `LmHead` and `Param` can be tied, but not in an `Option`, a `Vec` or an array"
)]
pub trait TiedWeight {
    /// The weight's shape.
    type Weight;
}

#[diagnostic::do_not_recommend]
impl<V: Whole, H: Whole> TiedWeight for Embedding<V, H, Plain> {
    type Weight = (V, H);
}

#[diagnostic::do_not_recommend]
impl<V: Whole, H: Whole, A: Axis, E> TiedWeight for Embedding<V, H, VocabSplit<A, E>> {
    type Weight = (Split<V, A>, H);
}

#[diagnostic::do_not_recommend]
impl<V: Whole, H: Whole> TiedWeight for LmHead<H, V, Plain> {
    type Weight = (V, H);
}

#[diagnostic::do_not_recommend]
impl<V: Whole, H: Whole, A: Axis> TiedWeight for LmHead<H, V, VocabSplit<A>> {
    type Weight = (Split<V, A>, H);
}

#[diagnostic::do_not_recommend]
impl<S: Dims> TiedWeight for Param<S> {
    type Weight = S;
}

/// A layer whose weight is shaped `W`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot share a weight shaped `{W}`",
    label = "its own weight has another shape, is split differently, or is not a single one",
    note = "shard both fields in the same way, or neither: `#[sharded(tp = \"vocab\")]` on an `Embedding` or `LmHead`, \
            `#[sharded(tp = \"row\")]` on a `Param<(Vocab, Hidden)>`",
    note = "an `Embedding<Vocab, Hidden>` and an `LmHead<Hidden, Vocab>` have a weight shaped `(Vocab, Hidden)`"
)]
pub trait SameWeightAs<W>: TiedWeight {}

#[diagnostic::do_not_recommend]
impl<L: TiedWeight<Weight = W>, W> SameWeightAs<W> for L {}

/// Compiles only if `field` and `target` can share one weight.
#[doc(hidden)]
pub fn check_tie<A: TiedWeight, B: SameWeightAs<A::Weight>>(_target: &A, _field: &B) {}
