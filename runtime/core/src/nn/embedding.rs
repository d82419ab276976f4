//! Token embedding: plain, or vocabulary-parallel.

use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

use crate::layout::{
    Axis, AxisId, AxisSet, Dim, Dims, ModelAxis, OnEveryRank, Seal, Split, Unsplit, Whole, With,
};
use crate::tensor::{
    AlwaysRecomputed, Count, Extent, InBackward, Init, Operands, Operation, OperationBackward,
    OperationForward, OperationParam, Param, ParamRef, Rank, Tensor, Tokens, Value, apply,
    gradient_axes, leave_region,
};
use meshwright_backend::Buffer;

use super::chain::stage_layers;
use super::debug::debug_layers;
use super::{Build, Builder, Layer, Plain, RegionExit, Shard, VocabSplit};

/// Embedding table with a row of `H` for each token of vocabulary `V`.
///
/// Shape: tokens `[..] -> [.., H]`; `weight[V, H]`.
///
/// `#[sharded(tp = "vocab")]` splits the vocabulary: each rank looks up the tokens of its shard, and the results are
/// all-reduced, or with `scatter = Seq` reduce-scattered into a sequence-parallel stream.
///
/// The row of [`Sizes::with_padding`](super::Sizes::with_padding) starts as zeros and gets no gradient from look-ups,
/// as by `padding_idx` of PyTorch. A head that is tied to the table still gives it one.
pub struct Embedding<V, H, Style = Plain> {
    weight: ParamRef,
    /// The token whose row gets no gradient.
    padding: Option<u32>,
    kind: PhantomData<(V, H, Style)>,
}

/// Looks up tokens shaped `[..]`; the result is shaped `[.., H]`. Of a split vocabulary, the rank whose shard holds the
/// row of a token looks it up, and all ranks of the axis pass the same tokens.
impl<V, H, Style, X: EmbeddingInput<V, H, Style>> Layer<Tokens<X>> for Embedding<V, H, Style> {
    type Out = Tensor<X::Out>;

    #[track_caller]
    fn forward(&self, tokens: &Tokens<X>) -> Self::Out {
        let rows = look_up_rows(tokens, (&self.weight, self.padding), X::GRADIENT_AXES);
        let Some((axis, scatter)) = X::LEAVES else { return Tensor::from_untyped(rows) };
        let site = self.weight.site().clone().at_location(Location::caller());
        Tensor::from_untyped(leave_region(rows, axis, scatter, &site))
    }
}

/// Shapes of tokens for an embedding of the vocabulary `V` in `Style`.
pub trait EmbeddingInput<V, H, Style>: Dims {
    /// Dims of the result.
    type Out: Dims;
    /// The axes over which the table's gradient is partial.
    const GRADIENT_AXES: AxisSet;
    /// The axis over which results are reduced, and the dim along which they are scattered.
    const LEAVES: Option<(AxisId, Option<usize>)> = None;
}

impl<X: Dims + With<H>, V: Whole, H: Whole> EmbeddingInput<V, H, Plain> for X {
    type Out = <X as With<H>>::Out;
    const GRADIENT_AXES: AxisSet = gradient_axes(X::VARIES, Self::Out::VARIES, AxisSet::NONE);
}

impl<X: Dims + VocabInput<H, A, E>, V: Whole, H: Whole, A: Axis, E>
    EmbeddingInput<V, H, VocabSplit<A, E>> for X
{
    type Out = <X as VocabInput<H, A, E>>::Out;
    const GRADIENT_AXES: AxisSet = gradient_axes(X::VARIES, X::VARIES, Split::<V, A>::VARIES);
    const LEAVES: Option<(AxisId, Option<usize>)> = Some((A::ID, X::SCATTER));
}

/// Shapes of tokens for a vocabulary-parallel embedding whose results are reduced by `E`.
#[diagnostic::on_unimplemented(
    message = "a vocabulary-parallel embedding cannot take tokens shaped `{Self}`",
    label = "split, or not scattered along the dim of the attribute",
    note = "the ranks that share a vocabulary look up the same tokens, so no dim of the tokens is split over their \
            axis",
    note = "`scatter = Dim` names the last dim of the tokens"
)]
pub trait VocabInput<H, A, E> {
    /// Dims of the result.
    type Out: Dims;
    /// The dim along which the result is scattered.
    const SCATTER: Option<usize>;
    #[doc(hidden)]
    const SEAL: Seal;
}

#[diagnostic::do_not_recommend]
impl<X: Unsplit, H, A, E: RegionExit<X, H, A>> VocabInput<H, A, E> for X {
    type Out = E::Out;
    const SCATTER: Option<usize> = E::SCATTER;
    const SEAL: Seal = Seal::new();
}

impl<V: Whole, H: Whole> Build for Embedding<V, H, Plain>
where
    V::Home: OnEveryRank<V>,
    H::Home: OnEveryRank<H>,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        Embedding::new::<(V, H)>(builder)
    }
}

impl<V: Whole, H: Whole, A: ModelAxis, E> Build for Embedding<V, H, VocabSplit<A, E>>
where
    V::Home: OnEveryRank<V>,
    H::Home: OnEveryRank<H>,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        Embedding::new::<(Split<V, A>, H)>(builder)
    }
}

impl<V: Whole, H, Style> Embedding<V, H, Style> {
    fn new<S: Dims>(builder: &mut Builder<'_>) -> Self {
        let (std, rows) = (builder.sizes().init_std, builder.size::<V>());
        let padding = builder.sizes().padding::<V>();
        if let Some(row) = padding.filter(|row| *row >= rows) {
            builder.problem(format_args!(
                "the padding row {row} of `Sizes::with_padding` is beyond the {rows} rows of {}",
                V::DECLARED_NAME
            ));
        }
        let init = match padding {
            Some(row) => Init::NormalExceptRow { std, row },
            None => Init::Normal(std),
        };
        let weight: Param<S> = builder.table("weight", init);
        let padding = padding.map(|row| row as u32);
        Embedding { weight: weight.handle().clone(), padding, kind: PhantomData }
    }
}

#[diagnostic::do_not_recommend]
impl<V, H, A, E> Shard<VocabSplit<A, E>> for Embedding<V, H> {
    type Sharded = Embedding<V, H, VocabSplit<A, E>>;
}

stage_layers! {
    Embedding<V, H, Style>;
}

/// Looks up the rows of the tokens in this rank's shard; rows of other tokens are zero. The row of the padding gets no
/// gradient.
#[track_caller]
pub(super) fn look_up_rows<X: Dims>(
    tokens: &Tokens<X>,
    (weight, padding): (&ParamRef, Option<u32>),
    axes: AxisSet,
) -> Value {
    let rank = tokens.rank();
    let vocab = weight.local_extents()[0];
    // No rank holds a row beyond the vocabulary.
    if let Some(id) = tokens.ids_to_check().iter().find(|id| **id as usize >= vocab.global) {
        panic!("`{}`: token id {id} is beyond the vocabulary of {}", weight.path(), vocab.global);
    }
    let ids = Arc::clone(tokens.id_buffer());
    look_up_ids(rank, ids, tokens.local_extents(), (weight, padding), axes)
}

/// Looks up the rows of `ids` of the given extents, all of them rows of the table, in this rank's shard.
#[track_caller]
pub(super) fn look_up_ids(
    rank: &Rank,
    ids: Arc<Buffer>,
    extents: &[Extent],
    (weight, padding): (&ParamRef, Option<u32>),
    axes: AxisSet,
) -> Value {
    let [vocab, hidden] = [weight.local_extents()[0], weight.local_extents()[1]];
    let weight =
        OperationParam { param: weight, gradient_axes: axes, in_backward: InBackward::Ignores };
    let operands = Operands::<Count<0>, Count<1>> {
        rank,
        path: weight.param.path(),
        inputs: [],
        params: [weight],
        extents: [extents, &[hidden]].concat(),
    };
    apply(LookUp { ids, padding, vocab, hidden }, operands)
}

/// Looks up the rows of `ids` in this rank's shard of a table.
struct LookUp {
    ids: Arc<Buffer>,
    padding: Option<u32>,
    vocab: Extent,
    hidden: Extent,
}

impl Operation<Count<0>, Count<1>> for LookUp {
    type Saved = AlwaysRecomputed<()>;

    fn forward(&self, forward: OperationForward<'_, Count<0>, Count<1>>) -> (Buffer, ()) {
        let OperationForward { rank, params: [table], .. } = forward;
        let mut out = rank.alloc_activation(self.ids.len() * self.hidden.local);
        rank.backend().embedding(self.ids.view(), table, self.vocab.offset, out.view_mut());
        (out, ())
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<0>, Count<1>>,
        _: AlwaysRecomputed<()>,
    ) {
        let OperationBackward { gradients, params: [table_use], gradient: dy, .. } = backward;
        gradients.weight_gradient(move |gradients| {
            let backend = gradients.rank.backend();
            table_use.finish_use(gradients, |mut dtable, accumulate| {
                if !accumulate {
                    backend.fill(dtable.reborrow(), 0.0);
                }
                let (ids, first) = (self.ids.view(), self.vocab.offset);
                backend.embedding_backward(ids, self.padding, first, dy.view(), dtable);
            });
        });
    }
}

debug_layers! {
    Embedding<V, H, Style>: weight;
}
