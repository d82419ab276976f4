//! Fields with a style that their layer does not have. They are one error, at the field: its uses compile as the
//! layer's.

use std::marker::PhantomData;
use std::ops::Deref;

use crate::layout::{Cp, Whole};

use super::affine::Affine;
use super::attention::{Alibi, Attention, AttentionSinks, ContextParallel, RelativeBias};
use super::bias::Bias;
use super::causal_conv::CausalConv;
use super::conv1d::Conv1d;
use super::cross_entropy::CrossEntropy;
use super::dropout::Dropout;
use super::embedding::Embedding;
use super::layer::HasForm;
use super::linear::Linear;
use super::lm_head::LmHead;
use super::moe::{GroupedBias, GroupedLinear, Router};
use super::norm::{LayerNorm, RmsNorm};
use super::positions::LearnedPositions;
use super::rope::Rope;
use super::stack::Stack;
use super::style::{ByExpert, Col, Row, Scatter, VocabSplit};
use super::{Build, Builder, Shard};
use crate::tensor::Param;

/// The type of a field whose layer `L` has no form in `Style`. It is never built.
pub struct NoForm<L, Style> {
    layer: L,
    style: PhantomData<Style>,
}

impl<L, Style> Deref for NoForm<L, Style> {
    type Target = L;

    fn deref(&self) -> &L {
        &self.layer
    }
}

impl<L: HasForm<Style>, Style> Build for NoForm<L, Style> {
    fn build(_: &mut Builder<'_>) -> Self {
        L::never_implemented()
    }
}

#[diagnostic::do_not_recommend]
impl<L, Style, Other> Shard<Other> for NoForm<L, Style> {
    type Sharded = NoForm<L, Style>;
}

/// The type of a sharded field `Linear<I, O, D>`. Two of its dims are a pair, and `L` is the layer that is meant. It is
/// never built.
pub struct Unpaired<L, I, O, D> {
    layer: L,
    dims: PhantomData<(I, O, D)>,
}

impl<L, I, O, D> Deref for Unpaired<L, I, O, D> {
    type Target = L;

    fn deref(&self) -> &L {
        &self.layer
    }
}

/// Never implemented: a linear layer of three dims.
#[diagnostic::on_unimplemented(
    message = "`Linear` reads one dim or pair and writes one, but has three dims here",
    label = "a pair of dims is a tuple",
    note = "write `Linear<{I}, ({O}, {D})>` for a layer that writes the pair, `Linear<({I}, {O}), {D}>` for one that \
            reads it"
)]
pub trait DimsInTuple<I, O, D> {
    #[doc(hidden)]
    fn never_implemented() -> !;
}

impl<L, I, O, D> Build for Unpaired<L, I, O, D>
where
    Linear<I, O, D>: DimsInTuple<I, O, D>,
{
    fn build(_: &mut Builder<'_>) -> Self {
        Linear::<I, O, D>::never_implemented()
    }
}

#[diagnostic::do_not_recommend]
impl<I, O, D: Whole, A> Shard<Col<A>> for Linear<I, O, D> {
    type Sharded = Unpaired<Linear<I, (O, D), Col<A>>, I, O, D>;
}

#[diagnostic::do_not_recommend]
impl<I, O, D: Whole, A, E> Shard<Row<A, E>> for Linear<I, O, D> {
    type Sharded = Unpaired<Linear<(I, O), D, Row<A, E>>, I, O, D>;
}

/// A norm over one dim; a norm over a pair has a column-parallel form.
#[diagnostic::do_not_recommend]
impl<H: Whole, S> Shard<S> for RmsNorm<H> {
    type Sharded = NoForm<RmsNorm<H>, S>;
}

macro_rules! no_form {
    ($(<$($param:ident),+ $(; $($len:ident),+)?> $layer:ty, $style:ty;)*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($param,)+ $($(const $len: usize),+)?> Shard<$style> for $layer {
            type Sharded = NoForm<$layer, $style>;
        }
    )*};
}

no_form! {
    <D, E, A, X> RmsNorm<(D, E)>, Row<A, X>;
    <D, E, A, X> RmsNorm<(D, E)>, VocabSplit<A, X>;
    <D, E, W> RmsNorm<(D, E)>, ContextParallel<Cp, W>;
    <D, E, A> RmsNorm<(D, E)>, ByExpert<A>;
    <H, S> LayerNorm<H>, S;
    <S> Dropout, S;
    <P, H, S> LearnedPositions<P, H>, S;
    <D, S> Rope<D>, S;
    <H, S> Alibi<H>, S;
    <I, E, C, S> Router<I, E, C>, S;
    <M, N, S> Stack<M, N>, S;
    <I, O, A, X> Linear<I, O>, VocabSplit<A, X>;
    <I, O, W> Linear<I, O>, ContextParallel<Cp, W>;
    <I, O, A> Linear<I, O>, ByExpert<A>;
    <P, A, X> Param<P>, VocabSplit<A, X>;
    <P, W> Param<P>, ContextParallel<Cp, W>;
    <P, A> Param<P>, ByExpert<A>;
    <D, A, X> Param<(D,)>, Row<A, X>;
    <F, A, X> Bias<F>, Row<A, X>;
    <F, A, X> Bias<F>, VocabSplit<A, X>;
    <F, W> Bias<F>, ContextParallel<Cp, W>;
    <F, A> Bias<F>, ByExpert<A>;
    <F, A, X; N> CausalConv<F, N>, Row<A, X>;
    <F, A, X; N> CausalConv<F, N>, VocabSplit<A, X>;
    <F, W; N> CausalConv<F, N>, ContextParallel<Cp, W>;
    <F, A; N> CausalConv<F, N>, ByExpert<A>;
    <I, O, A, X; N, S, P> Conv1d<I, O, N, S, P>, VocabSplit<A, X>;
    <I, O, W; N, S, P> Conv1d<I, O, N, S, P>, ContextParallel<Cp, W>;
    <I, O, A; N, S, P> Conv1d<I, O, N, S, P>, ByExpert<A>;
    <H, A, X> AttentionSinks<H>, Row<A, X>;
    <H, A, X> AttentionSinks<H>, VocabSplit<A, X>;
    <H, W> AttentionSinks<H>, ContextParallel<Cp, W>;
    <H, A> AttentionSinks<H>, ByExpert<A>;
    <N, H, A, X> RelativeBias<N, H>, Row<A, X>;
    <N, H, A, X> RelativeBias<N, H>, VocabSplit<A, X>;
    <N, H, W> RelativeBias<N, H>, ContextParallel<Cp, W>;
    <N, H, A> RelativeBias<N, H>, ByExpert<A>;
    <V, H, A> Embedding<V, H>, Col<A>;
    <V, H, A, X> Embedding<V, H>, Row<A, X>;
    <V, H, W> Embedding<V, H>, ContextParallel<Cp, W>;
    <V, H, A> Embedding<V, H>, ByExpert<A>;
    <H, V, A> LmHead<H, V>, Col<A>;
    <H, V, A, X> LmHead<H, V>, Row<A, X>;
    <H, V, W> LmHead<H, V>, ContextParallel<Cp, W>;
    <H, V, A> LmHead<H, V>, ByExpert<A>;
    <H, V, A, D> LmHead<H, V>, VocabSplit<A, Scatter<D>>;
    <V, A> CrossEntropy<V>, Col<A>;
    <V, A, X> CrossEntropy<V>, Row<A, X>;
    <V, W> CrossEntropy<V>, ContextParallel<Cp, W>;
    <V, A> CrossEntropy<V>, ByExpert<A>;
    <V, A, D> CrossEntropy<V>, VocabSplit<A, Scatter<D>>;
    <H, K, D, M, V, A> Attention<H, K, D, M, V>, Col<A>;
    <H, K, D, M, V, A, X> Attention<H, K, D, M, V>, Row<A, X>;
    <H, K, D, M, V, A, X> Attention<H, K, D, M, V>, VocabSplit<A, X>;
    <H, K, D, M, V, A> Attention<H, K, D, M, V>, ByExpert<A>;
    <I, O, A, X> Affine<I, O>, VocabSplit<A, X>;
    <I, O, W> Affine<I, O>, ContextParallel<Cp, W>;
    <I, O, A> Affine<I, O>, ByExpert<A>;
    <E, O, A> GroupedBias<E, O>, Col<A>;
    <E, O, A, X> GroupedBias<E, O>, Row<A, X>;
    <E, O, A, X> GroupedBias<E, O>, VocabSplit<A, X>;
    <E, O, W> GroupedBias<E, O>, ContextParallel<Cp, W>;
    <E, I, O, A> GroupedLinear<E, I, O>, Col<A>;
    <E, I, O, A, X> GroupedLinear<E, I, O>, Row<A, X>;
    <E, I, O, A, X> GroupedLinear<E, I, O>, VocabSplit<A, X>;
    <E, I, O, W> GroupedLinear<E, I, O>, ContextParallel<Cp, W>;
}
