//! Optional operands of attention: the fourth element of its input.

use std::rc::Rc;
use std::sync::Arc;

use crate::layout::Seal;
use crate::tensor::{Extent, OperationParam, Rank, VisibleRows};
use meshwright_backend::Buffer;

use super::inputs::AttentionInputs;
use super::score_bias::{Distances, ScoreBias};

/// An optional operand of attention, or a tuple of them, for queries shaped `Q` and keys shaped `Keys`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an optional operand of attention",
    label = "the fourth element of the operands",
    note = "optional operands are `Documents<(Batch, Seq)>` or `Padding<(Batch, Seq)>`, `&Alibi<Heads>` or \
            `&RelativeBias<Buckets, Heads>`, and `&AttentionSinks<Heads>`, or a tuple of them in this order",
    note = "the kind of mask is a parameter of the layer, `Attention<Heads, KvHeads, HeadDim, Bidirectional>`; \
            windows, soft cap and scale are in `Sizes`"
)]
pub trait AttentionExtra<Q, Keys> {
    /// Kind of the first operand.
    type First;
    /// Kind of the last operand.
    type Last;
    #[doc(hidden)]
    #[track_caller]
    fn add_to_extras<'a>(&'a self, extras: &mut Extras<'a>);
    #[doc(hidden)]
    const SEAL: Seal;
}

/// Kind of the operands that limit the keys of queries.
#[derive(Debug)]
pub struct KeysOfQueries;

/// Kind of the operands that are added to scores.
#[derive(Debug)]
pub struct BiasOfScores;

/// Kind of attention sinks.
#[derive(Debug)]
pub struct SinksOfHeads;

/// The kind of an operand that may follow `Before` in a tuple of optional operands.
#[diagnostic::on_unimplemented(
    message = "among the optional operands of attention, `{Self}` cannot come after `{Before}`",
    label = "each kind is given once, in the order keys of queries, bias of scores, sinks",
    note = "`Documents` and `Padding` limit the keys of queries, so padding of packed rows is a document of its own; \
            `Alibi` and `RelativeBias` are biases of scores: `(q, k, v, (padding, &self.bias, &self.sinks))`"
)]
pub trait ExtraAfter<Before> {
    #[doc(hidden)]
    const SEAL: Seal;
}

impl ExtraAfter<KeysOfQueries> for BiasOfScores {
    const SEAL: Seal = Seal::new();
}
impl ExtraAfter<KeysOfQueries> for SinksOfHeads {
    const SEAL: Seal = Seal::new();
}
impl ExtraAfter<BiasOfScores> for SinksOfHeads {
    const SEAL: Seal = Seal::new();
}

/// Heads of queries that an operand with heads `Held` fits: the same heads, split alike.
#[diagnostic::on_unimplemented(
    message = "the queries have heads `{Self}`, but `{Operand}` has heads `{Held}`",
    label = "mismatched heads of a bias or of sinks (the fourth element)",
    note = "the parameters of each head are where its queries are: `#[sharded(tp = \"col\")]` on the field of the bias \
            or sinks if it is on the projection of the queries, and on neither otherwise"
)]
pub trait SameHeads<Held, Operand> {
    #[doc(hidden)]
    const SEAL: Seal;
}

impl<H, Operand> SameHeads<H, Operand> for H {
    const SEAL: Seal = Seal::new();
}

/// The sequence of keys that has the positions of the queries' sequence `S`.
#[diagnostic::on_unimplemented(
    message = "`{Operand}` compares positions of queries along `{S}` with positions of keys along `{Self}`, \
               which is another sequence",
    label = "an operand of self-attention (the fourth element) in cross attention",
    note = "cross attention takes `Padding` of its keys, and sinks"
)]
pub trait SameSequence<S, Operand> {
    #[doc(hidden)]
    const SEAL: Seal;
}

impl<S, Operand> SameSequence<S, Operand> for S {
    const SEAL: Seal = Seal::new();
}

impl<E: AttentionExtra<Q, Keys>, Q, Keys> AttentionExtra<Q, Keys> for &E {
    type First = E::First;
    type Last = E::Last;
    const SEAL: Seal = E::SEAL;

    #[track_caller]
    fn add_to_extras<'a>(&'a self, extras: &mut Extras<'a>) {
        (**self).add_to_extras(extras);
    }
}

impl<E, F, Q, Keys> AttentionExtra<Q, Keys> for (E, F)
where
    E: AttentionExtra<Q, Keys>,
    F: AttentionExtra<Q, Keys, First: ExtraAfter<E::Last>>,
{
    type First = E::First;
    type Last = F::Last;
    const SEAL: Seal = E::SEAL;

    #[track_caller]
    fn add_to_extras<'a>(&'a self, extras: &mut Extras<'a>) {
        self.0.add_to_extras(extras);
        self.1.add_to_extras(extras);
    }
}

impl<E, F, G, Q, Keys> AttentionExtra<Q, Keys> for (E, F, G)
where
    E: AttentionExtra<Q, Keys>,
    F: AttentionExtra<Q, Keys, First: ExtraAfter<E::Last>>,
    G: AttentionExtra<Q, Keys, First: ExtraAfter<F::Last>>,
{
    type First = E::First;
    type Last = G::Last;
    const SEAL: Seal = E::SEAL;

    #[track_caller]
    fn add_to_extras<'a>(&'a self, extras: &mut Extras<'a>) {
        self.0.add_to_extras(extras);
        self.1.add_to_extras(extras);
        self.2.add_to_extras(extras);
    }
}

/// The optional operands of one application of attention, collected from their types.
pub struct Extras<'a> {
    /// The field of the attention.
    pub(super) path: &'a str,
    pub(super) rank: &'a Rank,
    /// Local extents of the queries and of the keys.
    pub(super) queries: &'a [Extent],
    pub(super) keys: &'a [Extent],
    pub(super) is_causal: bool,
    /// True if the documents are an operand, or were found.
    pub(super) has_documents: bool,
    /// First visible key of each query, and the end of the visible ones, u32 `[batch, queries]`.
    pub(super) ranges: Option<[Arc<Buffer>; 2]>,
    /// The same for the queries of whole rows, if ranks share them.
    pub(super) visible: Option<Rc<VisibleRows>>,
    pub(super) bias: Option<ScoreBias<'a>>,
    pub(super) sinks: Option<OperationParam<'a>>,
}

impl<'a> Extras<'a> {
    /// Creates the optional operands of `inputs`, all absent.
    pub(super) fn from_inputs(inputs: &'a AttentionInputs<'a>) -> Extras<'a> {
        Extras {
            path: &inputs.core.path,
            rank: &inputs.rank,
            queries: inputs.queries.extents(),
            keys: inputs.keys.extents(),
            is_causal: inputs.core.is_causal,
            has_documents: false,
            ranges: None,
            visible: None,
            bias: None,
            sinks: None,
        }
    }

    /// Returns the distances between queries and keys, up to `limit` positions before and after the query.
    pub(super) fn distances(&self, limit: usize) -> Distances {
        let [queries, keys] = [self.queries, self.keys].map(|extents| extents[1].global);
        let last = |positions: usize| positions.saturating_sub(1).min(limit);
        Distances { before: last(queries), after: if self.is_causal { 0 } else { last(keys) } }
    }

    /// Checks that the heads of a parameter, its dim `dim`, are the queries' heads on this rank.
    #[track_caller]
    pub(super) fn check_heads(&self, param: &OperationParam<'_>, dim: usize) {
        let (held, heads) = (param.param.local_extents()[dim], self.queries[2]);
        assert!(
            held == heads,
            "`{}`: the queries have {} heads, and this rank holds {}..{}, but `{}` has {}, and it holds {}..{}",
            self.path,
            heads.global,
            heads.offset,
            heads.offset + heads.local,
            param.param.path(),
            held.global,
            held.offset,
            held.offset + held.local
        );
    }
}
