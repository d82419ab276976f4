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
///
/// In this trait and its neighbors the operands are a parameter, and not `Self`, so that messages do not list the
/// impls.
#[diagnostic::on_unimplemented(
    message = "attention over `{H}` and `{K}` cannot take `{Self}`",
    label = "not queries, keys and values",
    note = "it takes one tuple by reference, `core.forward(&(q, k, v))`, of tensors shaped `(Batch, Seq, heads, head \
            dim)`",
    note = "optional operands are a fourth element: `(q, k, v, &self.bias)`, `(q, k, v, (padding, &self.sinks))`"
)]
pub trait QueriesKeysValues<H, K, D, M, V, Style, Operands = Self> {
    /// The result, shaped like the queries, with heads of `V` elements.
    type Out;
    #[doc(hidden)]
    #[track_caller]
    fn attend(operands: &Operands, core: &AttentionCore) -> Self::Out;
}

/// Shapes of queries, `(batch, sequence, H, D)`, the heads whole or split, with keys and values that match them.
#[diagnostic::on_unimplemented(
    message = "attention with heads `{H}` of `{D}` cannot take queries shaped `{Self}` with keys shaped `{Keys}`",
    label = "mismatched queries (the first operand)",
    note = "shard the projections of queries, keys and values alike: `#[sharded(tp = \"col\")]` on each makes a \
            `Split<Seq, Tp>` whole, and splits the heads; queries are shaped `(Batch, Seq, {H}, {D})` or `(Batch, Seq, \
            Split<{H}, Tp>, {D})`",
    note = "the tuple is `(queries, keys, values)`, in this order"
)]
pub trait QueriesOf<H, D, K, M, V, Keys, Values, Style = Plain, Queries = Self> {
    /// The shape of the result, with heads of `V` elements.
    type Out: Dims;
    /// The operations on keys and values as they enter attention: [`KeysShaped::KEY_ENTRIES`].
    const ENTRIES: [Entry; 2];
    #[doc(hidden)]
    const SEAL: Seal;
}

/// Shapes of keys that match the queries, and values shaped `Values` with heads of `V`.
#[diagnostic::on_unimplemented(
    message = "the keys are shaped `{Self}`, but these queries need keys shaped `{Expected}`",
    label = "mismatched keys (the second operand)",
    note = "shard the projections of queries, keys and values alike: `#[sharded(tp = \"col\")]` on each, which makes a \
            `Split<Seq, Tp>` whole as `.gather(Seq)` does, or on none; only keys and values together may be whole \
            while queries are split",
    note = "the sequence of the keys may be another dim than that of the queries if the attention is `Bidirectional`"
)]
pub trait KeysShaped<Expected, M, V, Values, Style = Plain, Keys = Self> {
    /// The operations on keys and values as they enter the region of the query heads, and the queries' part of the
    /// sequence.
    const KEY_ENTRIES: [Entry; 2];
    #[doc(hidden)]
    const SEAL: Seal;
}

/// Shapes of values that match the queries and keys.
#[diagnostic::on_unimplemented(
    message = "the values are shaped `{Self}`, but these queries and keys need values shaped `{Expected}`",
    label = "mismatched values (the third operand)",
    note = "shard the projections of queries, keys and values alike: `#[sharded(tp = \"col\")]` on each, which makes a \
            `Split<Seq, Tp>` whole as `.gather(Seq)` does, or on none; only keys and values together may be whole \
            while queries are split",
    note = "values with heads of another width are declared after the mask: `Attention<Heads, KvHeads, HeadDim, \
            Causal, ValueDim>`"
)]
pub trait ValuesShaped<Expected> {
    #[doc(hidden)]
    const SEAL: Seal;
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

/// The rules of a style: its bounds on the sequences of queries and keys, and the operation on keys and values for the
/// queries' part of the sequence.
///
/// The impls for a split sequence, and for split keys of whole queries, never apply. Where they match beside the
/// others, the compiler reports the trait, and not each bound of the others.
macro_rules! operands {
    ($([$($generics:ident)?] $style:ty: $queries:path, $keys:path, {$($home:ty: $of_keys:path,)?} $entry:expr;)*) => {$(
        impl<X, B: Dim, S: $queries, H: Whole, D: Whole, K: Whole, M, V: Whole, Keys, Values, $($generics)?>
            QueriesOf<H, D, K, M, V, Keys, Values, $style, (B, S, H, D)> for X
        where
            Keys: KeysShaped<(B, S, K, D), M, V, Values, $style>,
        {
            type Out = (B, S, H, V);
            const ENTRIES: [Entry; 2] = Keys::KEY_ENTRIES;
            const SEAL: Seal = Seal::new();
        }

        impl<X, B: Dim, S: $queries, H: Whole, A: Axis, D: Whole, K: Whole, M, V: Whole, Keys, Values, $($generics)?>
            QueriesOf<H, D, K, M, V, Keys, Values, $style, (B, S, Split<H, A>, D)> for X
        where
            Keys: KeysShaped<(B, S, Split<K, A>, D), M, V, Values, $style>,
        {
            type Out = (B, S, Split<H, A>, V);
            const ENTRIES: [Entry; 2] = Keys::KEY_ENTRIES;
            const SEAL: Seal = Seal::new();
        }

        impl<X, B: Dim, S: Whole, H: Whole, A: Axis, D: Whole, K: Whole, M, V: Whole, Keys, Values, $($generics)?>
            QueriesOf<H, D, K, M, V, Keys, Values, $style, (B, Split<S, A>, H, D)> for X
        where
            Split<S, A>: $queries,
        {
            type Out = (B, S, Split<H, A>, V);
            const ENTRIES: [Entry; 2] = [Entry::Stay; 2];
            const SEAL: Seal = Seal::new();
        }

        impl<X, B: Dim, S: Whole, T, H: Whole, A: Axis, D: Whole, K, M, V: Whole, Values, $($generics)?>
            QueriesOf<H, D, K, M, V, (B, T, Split<K, A>, D), Values, $style, (B, S, H, D)> for X
        where
            Split<K, A>: $queries,
        {
            type Out = (B, S, Split<H, A>, V);
            const ENTRIES: [Entry; 2] = [Entry::Stay; 2];
            const SEAL: Seal = Seal::new();
        }

        /// Keys whose heads are split like the queries' heads.
        impl<X, B: Dim, S, T: $keys, K: Dim, D: Dim, M, V, Values, $($generics)?>
            KeysShaped<(B, S, K, D), M, V, Values, $style, (B, T, K, D)> for X
        where
            $($home: $of_keys,)?
            M: MaskBetween<S, T>,
            Values: ValuesShaped<(B, T, K, V)>,
        {
            const KEY_ENTRIES: [Entry; 2] = [Entry::Stay, $entry];
            const SEAL: Seal = Seal::new();
        }

        /// Keys with whole heads for queries with split ones: each rank reads those that its queries need.
        impl<X, B: Dim, S, T: $keys, K: Whole, D: Dim, A: Axis, M, V, Values, $($generics)?>
            KeysShaped<(B, S, Split<K, A>, D), M, V, Values, $style, (B, T, K, D)> for X
        where
            $($home: $of_keys,)?
            M: MaskBetween<S, T>,
            Values: ValuesShaped<(B, T, K, V)>,
        {
            const KEY_ENTRIES: [Entry; 2] = [Entry::Copy(A::ID), $entry];
            const SEAL: Seal = Seal::new();
        }

        impl<X, B, S, T, K, L, D, A, M, V, Values, $($generics)?>
            KeysShaped<(B, S, L, D), M, V, Values, $style, (B, Split<T, A>, K, D)> for X
        where
            Split<T, A>: $keys,
        {
            const KEY_ENTRIES: [Entry; 2] = [Entry::Stay; 2];
            const SEAL: Seal = Seal::new();
        }
    )*};
}

operands! {
    [] Plain: Attended, Attended, {} Entry::Stay;
    [W] ContextParallel<Cp, W>: DistributedOver<Cp>, Whole, {T::Home: HomeOfKeys<S, T>,}
        <T::Home as HomeOfKeys<S, T>>::ENTRY;
}

#[diagnostic::do_not_recommend]
impl<S> ValuesShaped<S> for S {
    const SEAL: Seal = Seal::new();
}

impl<X, Q, Keys, Values, H, K, D, M, V> QueriesKeysValues<H, K, D, M, V, Plain, (Q, Keys, Values)>
    for X
where
    Keys: Operand,
    Values: Operand,
    Q: Operand<Shape: QueriesOf<H, D, K, M, V, Keys::Shape, Values::Shape>>,
{
    type Out = Tensor<<Q::Shape as QueriesOf<H, D, K, M, V, Keys::Shape, Values::Shape>>::Out>;

    #[track_caller]
    fn attend(operands: &(Q, Keys, Values), core: &AttentionCore) -> Self::Out {
        let (q, k, v) = operands;
        let inputs = AttentionInputs::new(core, q, k, v, Q::Shape::ENTRIES);
        let extras = Extras::from_inputs(&inputs);
        Tensor::from_untyped(inputs.attend(extras))
    }
}

impl<X, Q, Keys, Values, E, H, K, D, M, V>
    QueriesKeysValues<H, K, D, M, V, Plain, (Q, Keys, Values, E)> for X
where
    Keys: Operand,
    Values: Operand,
    Q: Operand<Shape: QueriesOf<H, D, K, M, V, Keys::Shape, Values::Shape>>,
    E: AttentionExtra<Q::Shape, Keys::Shape>,
{
    type Out = Tensor<<Q::Shape as QueriesOf<H, D, K, M, V, Keys::Shape, Values::Shape>>::Out>;

    #[track_caller]
    fn attend(operands: &(Q, Keys, Values, E), core: &AttentionCore) -> Self::Out {
        let (q, k, v, extra) = operands;
        let inputs = AttentionInputs::new(core, q, k, v, Q::Shape::ENTRIES);
        let mut extras = Extras::from_inputs(&inputs);
        extra.add_to_extras(&mut extras);
        Tensor::from_untyped(inputs.attend(extras))
    }
}
