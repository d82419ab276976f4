//! Fields with a `#[recompute]` that their type cannot have. They are one error, at the field: its uses compile as the
//! layer's.

use std::marker::PhantomData;
use std::ops::Deref;

use crate::nn::affine::Affine;
use crate::nn::attention::{Alibi, Attention, AttentionSinks, RelativeBias};
use crate::nn::bias::Bias;
use crate::nn::causal_conv::CausalConv;
use crate::nn::conv1d::Conv1d;
use crate::nn::cross_entropy::CrossEntropy;
use crate::nn::dropout::Dropout;
use crate::nn::embedding::Embedding;
use crate::nn::linear::Linear;
use crate::nn::lm_head::LmHead;
use crate::nn::moe::{GroupedBias, GroupedLinear, Router};
use crate::nn::norm::{LayerNorm, RmsNorm};
use crate::nn::positions::LearnedPositions;
use crate::nn::rope::Rope;
use crate::nn::{Build, Builder};
use crate::tensor::Param;

use super::{Recompute, RecomputeEvery, RecomputesAlone, RecomputesGroups};

/// The type of a field whose layer `L` cannot be recomputed in one way. It is never built.
pub struct NotRecomputed<L, Way> {
    layer: L,
    way: PhantomData<Way>,
}

/// The layer by itself: `#[recompute]`.
pub enum Alone {}

/// Groups of layers: `#[recompute(every = 2)]`.
pub enum Grouped {}

impl<L, Way> Deref for NotRecomputed<L, Way> {
    type Target = L;

    fn deref(&self) -> &L {
        &self.layer
    }
}

impl<L: RecomputesAlone> Build for NotRecomputed<L, Alone> {
    fn build(_: &mut Builder<'_>) -> Self {
        L::never_implemented()
    }
}

impl<L: RecomputesGroups> Build for NotRecomputed<L, Grouped> {
    fn build(_: &mut Builder<'_>) -> Self {
        L::never_implemented()
    }
}

macro_rules! layers {
    ($(<$($param:ident),* $(; $($len:ident),+)?> $layer:ty;)*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($param,)* $($(const $len: usize),+)?> Recompute for $layer {
            type Recomputed = NotRecomputed<$layer, Alone>;
            type Layer = $layer;
        }

        #[diagnostic::do_not_recommend]
        impl<$($param,)* $($(const $len: usize),+)?> RecomputeEvery for $layer {
            type Recomputed = NotRecomputed<$layer, Grouped>;
            type Layer = $layer;
        }
    )*};
}

layers! {
    <H, S> RmsNorm<H, S>;
    <H> LayerNorm<H>;
    <> Dropout;
    <P, H> LearnedPositions<P, H>;
    <D> Rope<D>;
    <H> Alibi<H>;
    <I, E, C> Router<I, E, C>;
    <S> Param<S>;
    <F, S> Bias<F, S>;
    <F, S; N> CausalConv<F, N, S>;
    <I, O, S; N, T, P> Conv1d<I, O, N, T, P, S>;
    <H, S> AttentionSinks<H, S>;
    <N, H, S> RelativeBias<N, H, S>;
    <I, O, S> Linear<I, O, S>;
    <I, O, S> Affine<I, O, S>;
    <E, O, S> GroupedBias<E, O, S>;
    <V, H, S> Embedding<V, H, S>;
    <H, V, S> LmHead<H, V, S>;
    <V, S> CrossEntropy<V, S>;
    <H, K, D, M, V, S> Attention<H, K, D, M, V, S>;
    <E, I, O, S> GroupedLinear<E, I, O, S>;
}
