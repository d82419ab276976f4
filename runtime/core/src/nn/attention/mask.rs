//! Kinds of masks of attention, as types.

use crate::layout::Seal;

/// Each query attends to the keys up to its own position. Queries and keys are positions of one sequence.
#[derive(Debug, Clone, Copy)]
pub struct Causal;

/// Each query attends to the keys before and after it: encoders, and cross attention, whose keys have a sequence of
/// their own.
#[derive(Debug, Clone, Copy)]
pub struct Bidirectional;

/// Kind of mask of an attention: [`Causal`] or [`Bidirectional`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a kind of mask of attention",
    label = "neither `Causal` nor `Bidirectional`",
    note = "the parameters are `Attention<Heads, KvHeads, HeadDim, Mask, ValueDim>`: the width of values comes after \
            the mask, as in `Attention<Heads, KvHeads, HeadDim, Causal, ValueDim>`"
)]
pub trait AttentionMask: 'static {
    /// True if a query attends to no key after its own position.
    const IS_CAUSAL: bool;
    #[doc(hidden)]
    const SEAL: Seal;
}

impl AttentionMask for Causal {
    const IS_CAUSAL: bool = true;
    const SEAL: Seal = Seal::new();
}

impl AttentionMask for Bidirectional {
    const IS_CAUSAL: bool = false;
    const SEAL: Seal = Seal::new();
}

/// A mask between queries along the dim `S` and keys along the dim `T`: a causal mask compares positions of one
/// sequence.
#[diagnostic::on_unimplemented(
    message = "causal attention of queries along `{S}` cannot read keys along `{T}`: a position of one sequence is not \
               before or after a position of another one",
    label = "the keys (the second operand) have another sequence than the queries",
    note = "cross attention reads all keys: `Attention<Heads, KvHeads, HeadDim, Bidirectional>`"
)]
pub trait MaskBetween<S, T>: AttentionMask {
    #[doc(hidden)]
    const SEAL: Seal;
}

impl<S> MaskBetween<S, S> for Causal {
    const SEAL: Seal = Seal::new();
}

impl<S, T> MaskBetween<S, T> for Bidirectional {
    const SEAL: Seal = Seal::new();
}
