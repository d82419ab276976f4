//! Token embedding: plain, or with the vocabulary split over an axis.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::layout::{Axis, AxisSet, Dim, Shape, Split, Whole, With};
use crate::tensor::{
    Extent, InBackward, Init, Param, ParamRef, ParamUse, Tensor, Tokens, Value, gradient_axes,
    leave, local_len,
};

use super::{Build, Builder, End, Layer, Plain, Shard, VocabSplit};

/// Looks up a row of `H` for each token of vocabulary `V`; its weight is shaped `(V, H)`.
///
/// `#[sharded(tp = "vocab")]` splits the vocabulary: each rank looks up the tokens it holds, and the results are summed
/// (all-reduced, or with `scatter = Seq` reduce-scattered into a sequence-parallel stream).
pub struct Embedding<V, H, Style = Plain> {
    weight: ParamRef,
    kind: PhantomData<(V, H, Style)>,
}

impl<V: Whole, H: Whole> Embedding<V, H, Plain> {
    /// `[.., H]` for tokens `[..]`.
    pub fn forward<X: Shape + With<H>>(&self, tokens: &Tokens<X>) -> Tensor<<X as With<H>>::Out> {
        let axes = gradient_axes(X::VARIES, <X as With<H>>::Out::VARIES, AxisSet::NONE);
        Tensor::wrap(look_up(tokens, &self.weight, axes))
    }
}

impl<V: Whole, H: Whole, A: Axis, E> Embedding<V, H, VocabSplit<A, E>> {
    /// `[.., H]` for tokens `[..]`, each looked up by the rank that holds it. All ranks of the axis look up the same
    /// tokens:
    ///
    /// ```compile_fail,E0080
    /// use meshwright::nn::VocabSplit;
    /// use meshwright::prelude::*;
    ///
    /// dims! { Batch @ data, Seq, Vocab, Hidden }
    ///
    /// fn look_up(
    ///     embedding: &Embedding<Vocab, Hidden, VocabSplit<Tp>>,
    ///     tokens: &Tokens<(Batch, Split<Seq, Tp>)>,
    /// ) -> Tensor<(Batch, Split<Seq, Tp>, Hidden)> {
    ///     embedding.forward(tokens)
    /// }
    ///
    /// fn main() {
    ///     let _ = look_up as fn(&_, &_) -> _;
    /// }
    /// ```
    pub fn forward<X>(&self, tokens: &Tokens<X>) -> Tensor<<X as VocabInput<H, A, E>>::Out>
    where
        X: Shape + VocabInput<H, A, E>,
    {
        const {
            assert!(
                X::VARIES.and(A::AXES).is_empty(),
                "the ranks that share a vocabulary must look up the same tokens: the axis that splits the vocabulary \
                 cannot split the tokens, too"
            );
        }
        let axes = gradient_axes(X::VARIES, X::VARIES, Split::<V, A>::VARIES);
        let partial = look_up(tokens, &self.weight, axes);
        Tensor::wrap(leave(partial, A::ID, X::SCATTER, self.weight.site()))
    }
}

/// Shapes of tokens that a vocabulary-parallel embedding, ending as `E` says, takes.
#[diagnostic::on_unimplemented(
    message = "a vocabulary-parallel embedding cannot take tokens shaped `{Self}`",
    label = "cannot be scattered as the attribute says",
    note = "`scatter = Dim` names the last dim of the tokens, which must be whole"
)]
pub trait VocabInput<H, A, E> {
    /// Shape of the result.
    type Out: Shape;
    /// The dim that the result is scattered along.
    const SCATTER: Option<usize>;
}

#[diagnostic::do_not_recommend]
impl<X, H, A, E: End<X, H, A>> VocabInput<H, A, E> for X {
    type Out = E::Out;
    const SCATTER: Option<usize> = E::SCATTER;
}

impl<V: Whole, H: Whole> Build for Embedding<V, H, Plain> {
    fn build(builder: &mut Builder<'_>) -> Self {
        Embedding::new::<(V, H)>(builder)
    }
}

impl<V: Whole, H: Whole, A: Axis, E> Build for Embedding<V, H, VocabSplit<A, E>> {
    fn build(builder: &mut Builder<'_>) -> Self {
        Embedding::new::<(Split<V, A>, H)>(builder)
    }
}

impl<V, H, Style> Embedding<V, H, Style> {
    fn new<S: Shape>(builder: &mut Builder<'_>) -> Self {
        let std = builder.sizes().init_std;
        let weight: Param<S> = builder.table("weight", Init::Normal(std));
        Embedding { weight: weight.handle().clone(), kind: PhantomData }
    }
}

#[diagnostic::do_not_recommend]
impl<V, H, A, E> Shard<VocabSplit<A, E>> for Embedding<V, H> {
    type Sharded = Embedding<V, H, VocabSplit<A, E>>;
}

impl<V: Whole, H: Whole, X: Shape + With<H>> Layer<Tokens<X>> for Embedding<V, H, Plain> {
    type Out = Tensor<<X as With<H>>::Out>;

    fn forward(&self, x: &Tokens<X>) -> Self::Out {
        Embedding::<V, H, Plain>::forward(self, x)
    }
}

impl<V: Whole, H: Whole, A: Axis, E, X: Shape + VocabInput<H, A, E>> Layer<Tokens<X>>
    for Embedding<V, H, VocabSplit<A, E>>
{
    type Out = Tensor<<X as VocabInput<H, A, E>>::Out>;

    fn forward(&self, x: &Tokens<X>) -> Self::Out {
        Embedding::<V, H, VocabSplit<A, E>>::forward(self, x)
    }
}

/// Rows of the weight for the tokens this rank holds; zeros for the others.
fn look_up<X: Shape>(tokens: &Tokens<X>, weight: &ParamRef, axes: AxisSet) -> Value {
    let rank = tokens.rank();
    let [vocab, hidden] = [weight.extents()[0], weight.extents()[1]];
    // Beyond the vocabulary there is no rank that would hold the row.
    if let Some(id) = tokens.on_host().iter().find(|id| **id as usize >= vocab.global) {
        panic!("`{}`: token id {id} is beyond the vocabulary of {}", weight.path(), vocab.global);
    }
    let mut out = rank.alloc(local_len(tokens.extents()) * hidden.local);
    rank.backend().embedding(
        tokens.ids().view(),
        weight.read(axes).view(),
        vocab.offset,
        out.view_mut(),
    );
    let node = rank.is_recording().then(|| {
        let ids = Arc::clone(tokens.ids());
        let weight_use = ParamUse::new(weight, axes, InBackward::Ignores);
        rank.tape().record(move |gradients, dy| {
            let backend = gradients.rank.backend();
            weight_use.finish(gradients, |mut dweight, accumulate| {
                if !accumulate {
                    backend.fill(dweight.reborrow(), 0.0);
                }
                backend.embedding_backward(ids.view(), vocab.offset, dy.view(), dweight);
            });
        })
    });
    let extents: Vec<Extent> = [tokens.extents(), &[hidden]].concat();
    Value::ready(rank, extents, out, node)
}
