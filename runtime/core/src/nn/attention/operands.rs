//! Shapes of queries, keys and values that fit together.

use crate::layout::{Axis, AxisId, Cp, Dim, Dims, Entry, Here, Home, Seal, Split, Whole};
use crate::tensor::{Operand, Tensor};

use super::super::Plain;
use super::context::{Attended, ContextParallel, DistributedOver};
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

/// Shapes of queries, `(batch, sequence, H, D)`, the heads whole or split, with keys and values that match them.
#[diagnostic::on_unimplemented(
    message = "the queries are shaped `{Self}`, but this attention has heads `{H}` of `{D}`",
    label = "mismatched queries (the first operand)",
    note = "queries are shaped `(Batch, Seq, {H}, {D})`, with `{H}` whole, or split by `#[sharded(tp = \"col\")]` on \
            their projection",
    note = "the tuple is `(queries, keys, values)`, in this order"
)]
pub trait QueriesOf<H, D, K, M, V, Keys, Values, Style = Plain>: Dims {
    /// The shape of the result, with heads of `V` elements.
    type Out: Dims;
    /// The operations on keys and values as they enter attention: [`KeysShaped::ENTRIES`].
    const ENTRIES: [Entry; 2];
    #[doc(hidden)]
    const SEAL: Seal;
}

macro_rules! queries {
    ($([$($generics:tt)*] $sequence:path, $style:ty;)*) => {$(
        impl<B: Dim, S: $sequence, H: Whole, D: Whole, K: Whole, M, V: Whole, Keys, Values, $($generics)*>
            QueriesOf<H, D, K, M, V, Keys, Values, $style> for (B, S, H, D)
        where
            Keys: KeysShaped<(B, S, K, D), M, V, Values, $style>,
        {
            type Out = (B, S, H, V);
            const ENTRIES: [Entry; 2] = Keys::ENTRIES;
            const SEAL: Seal = Seal::new();
        }

        impl<B: Dim, S: $sequence, H: Whole, A: Axis, D: Whole, K: Whole, M, V: Whole, Keys, Values, $($generics)*>
            QueriesOf<H, D, K, M, V, Keys, Values, $style> for (B, S, Split<H, A>, D)
        where
            Keys: KeysShaped<(B, S, Split<K, A>, D), M, V, Values, $style>,
        {
            type Out = (B, S, Split<H, A>, V);
            const ENTRIES: [Entry; 2] = Keys::ENTRIES;
            const SEAL: Seal = Seal::new();
        }
    )*};
}

queries! {
    [] Attended, Plain;
    [W] DistributedOver<Cp>, ContextParallel<Cp, W>;
}

/// The sequence of the keys for queries along `S`.
#[diagnostic::on_unimplemented(
    message = "context-parallel attention of queries along `{S}` cannot read keys along `{Self}`",
    label = "the keys (the second operand) have another sequence than the queries",
    note = "queries, keys and values are along one sequence; in cross attention each rank reads all keys, along a dim \
            declared without `@`",
    note = "a `Split<Seq, Tp>` is made whole by a column-parallel projection, or by `.gather(Seq)`"
)]
pub trait KeysAlong<S, Style>: Dim {
    /// The operation on keys and values as they enter attention.
    const ENTRY: Entry;
    #[doc(hidden)]
    const SEAL: Seal;
}

impl<S, T: Attended> KeysAlong<S, Plain> for T {
    const ENTRY: Entry = Entry::Stay;
    const SEAL: Seal = Seal::new();
}

#[diagnostic::do_not_recommend]
impl<S: DistributedOver<Cp>, T: Whole, W> KeysAlong<S, ContextParallel<Cp, W>> for T
where
    T::Home: HomeOfKeys<S, T>,
{
    const ENTRY: Entry = <T::Home as HomeOfKeys<S, T>>::ENTRY;
    const SEAL: Seal = Seal::new();
}

/// The home of the sequence `T` of keys for queries along `S`, which the ranks of `cp` share: that of the queries, or
/// that of a memory which each rank has all of.
#[diagnostic::on_unimplemented(
    message = "context-parallel attention of queries along `{S}` cannot read keys along `{T}`",
    label = "the keys (the second operand) have another sequence than the queries",
    note = "queries, keys and values are along one sequence; in cross attention each rank reads all keys, along a dim \
            declared without `@`"
)]
pub trait HomeOfKeys<S, T>: Home {
    /// The operation on keys and values as they enter attention.
    const ENTRY: Entry;
    #[doc(hidden)]
    const SEAL: Seal;
}

impl<S> HomeOfKeys<S, S> for Cp {
    const ENTRY: Entry = Entry::Stay;
    const SEAL: Seal = Seal::new();
}

/// The queries of each rank contribute to the gradients of all keys.
impl<S, T> HomeOfKeys<S, T> for Here {
    const ENTRY: Entry = Entry::Copy(AxisId::Cp);
    const SEAL: Seal = Seal::new();
}

/// Shapes of keys that match the queries, and values shaped `Values` with heads of `V`.
#[diagnostic::on_unimplemented(
    message = "the keys are shaped `{Self}`, but these queries need keys shaped `{Expected}`",
    label = "mismatched keys (the second operand)",
    note = "shard the projections of queries, keys and values alike: `#[sharded(tp = \"col\")]` on each or on none; \
            only keys and values together may be whole while queries are split",
    note = "the sequence of the keys may be another dim than that of the queries if the attention is `Bidirectional`"
)]
pub trait KeysShaped<Expected, M, V, Values, Style = Plain>: Dims {
    /// The operations on keys and values as they enter the region of the query heads, and the queries' part of the
    /// sequence.
    const ENTRIES: [Entry; 2];
    #[doc(hidden)]
    const SEAL: Seal;
}

/// Keys whose heads are split like the queries' heads.
impl<B: Dim, S, T, K: Dim, D: Dim, M, V, Values, Style>
    KeysShaped<(B, S, K, D), M, V, Values, Style> for (B, T, K, D)
where
    T: KeysAlong<S, Style>,
    M: MaskBetween<S, T>,
    Values: ValuesShaped<(B, T, K, V)>,
{
    const ENTRIES: [Entry; 2] = [Entry::Stay, T::ENTRY];
    const SEAL: Seal = Seal::new();
}

/// Keys with whole heads for queries with split ones: each rank reads those that its queries need.
impl<B: Dim, S, T, K: Whole, D: Dim, A: Axis, M, V, Values, Style>
    KeysShaped<(B, S, Split<K, A>, D), M, V, Values, Style> for (B, T, K, D)
where
    T: KeysAlong<S, Style>,
    M: MaskBetween<S, T>,
    Values: ValuesShaped<(B, T, K, V)>,
{
    const ENTRIES: [Entry; 2] = [Entry::Copy(A::ID), T::ENTRY];
    const SEAL: Seal = Seal::new();
}

/// Shapes of values that match the queries and keys.
#[diagnostic::on_unimplemented(
    message = "the values are shaped `{Self}`, but these queries and keys need values shaped `{Expected}`",
    label = "mismatched values (the third operand)",
    note = "shard the projections of queries, keys and values alike: `#[sharded(tp = \"col\")]` on each or on none; \
            only keys and values together may be whole while queries are split",
    note = "values with heads of another width are declared after the mask: `Attention<Heads, KvHeads, HeadDim, \
            Causal, ValueDim>`"
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
        let inputs = AttentionInputs::new(core, q, k, v, Q::Shape::ENTRIES);
        let extras = Extras::from_inputs(&inputs);
        Tensor::from_untyped(inputs.attend(extras))
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
        let inputs = AttentionInputs::new(core, q, k, v, Q::Shape::ENTRIES);
        let mut extras = Extras::from_inputs(&inputs);
        extra.add_to_extras(&mut extras);
        Tensor::from_untyped(inputs.attend(extras))
    }
}
