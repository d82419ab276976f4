//! Shapes of queries, keys and values that fit together.

use crate::layout::{Axis, Dim, Dims, Entry, Local, Seal, Split, Whole};
use crate::tensor::{Operand, Tensor};

use super::super::Plain;
use super::extras::{AttentionExtra, Extras};
use super::inputs::{AttentionCore, AttentionInputs};
use super::mask::MaskBetween;

/// Matching queries, keys and values, `[batch, sequence, H, D]`, `[batch, keys, K, D]` and `[batch, keys, K, V]`, and
/// optional operands. `H` and `K` are both whole, or split over one axis, or only `H` is split.
#[diagnostic::on_unimplemented(
    message = "attention over `{H}` and `{K}` cannot take `{Self}`",
    label = "not queries, keys and values",
    note = "it takes the tuple `(queries, keys, values)`, each a tensor shaped `(Batch, Seq, heads, head dim)`",
    note = "optional operands are a fourth element: `(q, k, v, &self.bias)`, `(q, k, v, (padding, &self.sinks))`"
)]
pub trait QueriesKeysValues<H, K, D, M, V, Style> {
    /// The result, shaped like the queries, with heads of `V` elements.
    type Out;
    #[doc(hidden)]
    #[track_caller]
    fn attend(&self, core: &AttentionCore) -> Self::Out;
}

/// Shapes of queries, `(batch, sequence, H, D)`, the heads whole or split, beside keys and values that match them.
#[diagnostic::on_unimplemented(
    message = "the queries are shaped `{Self}`, but this attention has heads `{H}` of `{D}`",
    label = "mismatched queries (the first operand)",
    note = "queries are shaped `(Batch, Seq, {H}, {D})`, with `{H}` whole, or split by `#[sharded(tp = \"col\")]` on their projection",
    note = "the tuple is `(queries, keys, values)`, in this order"
)]
pub trait QueriesOf<H, D, K, M, V, Keys, Values>: Dims {
    /// The shape of the result, with heads of `V` elements.
    type Out: Dims;
    /// The operation on keys and values as they enter the region of the query heads.
    const ENTRY: Entry;
    #[doc(hidden)]
    const SEAL: Seal;
}

impl<B: Dim, S: Local, H: Whole, D: Whole, K: Whole, M, V: Whole, Keys, Values>
    QueriesOf<H, D, K, M, V, Keys, Values> for (B, S, H, D)
where
    Keys: KeysShaped<(B, S, K, D), M, V, Values>,
{
    type Out = (B, S, H, V);
    const ENTRY: Entry = Keys::ENTRY;
    const SEAL: Seal = Seal::new();
}

impl<B: Dim, S: Local, H: Whole, A: Axis, D: Whole, K: Whole, M, V: Whole, Keys, Values>
    QueriesOf<H, D, K, M, V, Keys, Values> for (B, S, Split<H, A>, D)
where
    Keys: KeysShaped<(B, S, Split<K, A>, D), M, V, Values>,
{
    type Out = (B, S, Split<H, A>, V);
    const ENTRY: Entry = Keys::ENTRY;
    const SEAL: Seal = Seal::new();
}

/// Shapes of keys that match the queries, and values shaped `Values` with heads of `V`.
#[diagnostic::on_unimplemented(
    message = "the keys are shaped `{Self}`, but these queries need keys shaped `{Expected}`",
    label = "mismatched keys (the second operand)",
    note = "shard the projections of queries, keys and values alike: `#[sharded(tp = \"col\")]` on each or on none; only keys and values together may be whole beside split queries",
    note = "the sequence of the keys may be another dim than that of the queries if the attention is `Bidirectional`"
)]
pub trait KeysShaped<Expected, M, V, Values>: Dims {
    /// The operation on keys and values as they enter the region of the query heads.
    const ENTRY: Entry;
    #[doc(hidden)]
    const SEAL: Seal;
}

/// Keys with heads that are split like those of the queries.
impl<B: Dim, S, T: Local, K: Dim, D: Dim, M, V, Values> KeysShaped<(B, S, K, D), M, V, Values>
    for (B, T, K, D)
where
    M: MaskBetween<S, T>,
    Values: ValuesShaped<(B, T, K, V)>,
{
    const ENTRY: Entry = Entry::Stay;
    const SEAL: Seal = Seal::new();
}

/// Keys with whole heads beside queries with split ones: each rank reads those that its queries need.
impl<B: Dim, S, T: Local, K: Whole, D: Dim, A: Axis, M, V, Values>
    KeysShaped<(B, S, Split<K, A>, D), M, V, Values> for (B, T, K, D)
where
    M: MaskBetween<S, T>,
    Values: ValuesShaped<(B, T, K, V)>,
{
    const ENTRY: Entry = Entry::Copy(A::ID);
    const SEAL: Seal = Seal::new();
}

/// Shapes of values that match the queries and keys.
#[diagnostic::on_unimplemented(
    message = "the values are shaped `{Self}`, but these queries and keys need values shaped `{Expected}`",
    label = "mismatched values (the third operand)",
    note = "shard the projections of queries, keys and values alike: `#[sharded(tp = \"col\")]` on each or on none; only keys and values together may be whole beside split queries",
    note = "values with heads of another width are declared after the mask: `Attention<Heads, KvHeads, HeadDim, Causal, ValueDim>`"
)]
pub trait ValuesShaped<Expected> {
    #[doc(hidden)]
    const SEAL: Seal;
}

impl<S> ValuesShaped<S> for S {
    const SEAL: Seal = Seal::new();
}

impl<Q, Keys, Values, H, K, D, M, V> QueriesKeysValues<H, K, D, M, V, Plain> for (Q, Keys, Values)
where
    Keys: Operand,
    Values: Operand,
    Q: Operand<Shape: QueriesOf<H, D, K, M, V, Keys::Shape, Values::Shape>>,
{
    type Out = Tensor<<Q::Shape as QueriesOf<H, D, K, M, V, Keys::Shape, Values::Shape>>::Out>;

    #[track_caller]
    fn attend(&self, core: &AttentionCore) -> Self::Out {
        let (q, k, v) = self;
        let inputs = AttentionInputs::new(core, q, k, v, Q::Shape::ENTRY);
        let extras = Extras::of(&inputs);
        Tensor::wrap(inputs.attend(extras))
    }
}

impl<Q, Keys, Values, E, H, K, D, M, V> QueriesKeysValues<H, K, D, M, V, Plain>
    for (Q, Keys, Values, E)
where
    Keys: Operand,
    Values: Operand,
    Q: Operand<Shape: QueriesOf<H, D, K, M, V, Keys::Shape, Values::Shape>>,
    E: AttentionExtra<Q::Shape, Keys::Shape>,
{
    type Out = Tensor<<Q::Shape as QueriesOf<H, D, K, M, V, Keys::Shape, Values::Shape>>::Out>;

    #[track_caller]
    fn attend(&self, core: &AttentionCore) -> Self::Out {
        let (q, k, v, extra) = self;
        let inputs = AttentionInputs::new(core, q, k, v, Q::Shape::ENTRY);
        let mut extras = Extras::of(&inputs);
        extra.add_to(&mut extras);
        Tensor::wrap(inputs.attend(extras))
    }
}
