//! Attention sinks: a learned score of each head that has no value.

use std::marker::PhantomData;

use crate::layout::{Axis, AxisSet, Dims, ModelAxis, OnEveryRank, Seal, Split, Whole};
use crate::tensor::{InBackward, Init, OperationParam, Param, ParamRef, gradient_axes};

use super::super::{Build, Builder, Col, Plain, Shard};
use super::extras::{AttentionExtra, Extras, SameHeads, SinksOfHeads};
use crate::nn::debug::debug_layers;

/// A learned score for each of `H` heads, of a key without a value: weights of the keys sum to less than one, so a head
/// can attend to nothing (Xiao et al. 2024; as in gpt-oss, Agarwal et al. 2025). An optional operand of attention.
///
/// Shape: a score beside scores `[batch, H, sequence, keys]`; `weight[H]`.
///
/// `#[sharded(tp = "col")]` splits the heads like the queries' heads.
pub struct AttentionSinks<H, Style = Plain> {
    weight: ParamRef,
    kind: PhantomData<(H, Style)>,
}

impl<H, Style> AttentionSinks<H, Style> {
    fn new<S: Dims>(builder: &mut Builder<'_>) -> Self {
        let std = builder.sizes().init_std;
        let weight: Param<S> = builder.param("weight", Init::Normal(std));
        AttentionSinks { weight: weight.handle().clone(), kind: PhantomData }
    }

    /// Adds the sinks, whose weight has a gradient that is partial over `gradient_axes`.
    #[track_caller]
    fn add_weight<'a>(&'a self, extras: &mut Extras<'a>, gradient_axes: AxisSet) {
        let in_backward = InBackward::Reads;
        let weight = OperationParam { param: &self.weight, gradient_axes, in_backward };
        extras.check_heads(&weight, 0);
        extras.sinks = Some(weight);
    }
}

impl<H: Whole> Build for AttentionSinks<H, Plain>
where
    H::Home: OnEveryRank<H>,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        AttentionSinks::new::<(H,)>(builder)
    }
}

impl<H: Whole, A: ModelAxis> Build for AttentionSinks<H, Col<A>>
where
    H::Home: OnEveryRank<H>,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        AttentionSinks::new::<(Split<H, A>,)>(builder)
    }
}

#[diagnostic::do_not_recommend]
impl<H, A> Shard<Col<A>> for AttentionSinks<H> {
    type Sharded = AttentionSinks<H, Col<A>>;
}

impl<H: Whole, B, S, Heads, D, Keys> AttentionExtra<(B, S, Heads, D), Keys> for AttentionSinks<H>
where
    (B, S, Heads, D): Dims,
    Heads: SameHeads<H, AttentionSinks<H>>,
{
    type First = SinksOfHeads;
    type Last = SinksOfHeads;
    const SEAL: Seal = Seal::new();

    #[track_caller]
    fn add_to_extras<'a>(&'a self, extras: &mut Extras<'a>) {
        let varies = <(B, S, Heads, D)>::VARIES;
        self.add_weight(extras, gradient_axes(varies, varies, <(H,)>::VARIES));
    }
}

impl<H: Whole, A: Axis, B, S, Heads, D, Keys> AttentionExtra<(B, S, Heads, D), Keys>
    for AttentionSinks<H, Col<A>>
where
    (B, S, Heads, D): Dims,
    Heads: SameHeads<Split<H, A>, AttentionSinks<H, Col<A>>>,
{
    type First = SinksOfHeads;
    type Last = SinksOfHeads;
    const SEAL: Seal = Seal::new();

    #[track_caller]
    fn add_to_extras<'a>(&'a self, extras: &mut Extras<'a>) {
        let varies = <(B, S, Heads, D)>::VARIES;
        self.add_weight(extras, gradient_axes(varies, varies, <(Split<H, A>,)>::VARIES));
    }
}

debug_layers! {
    AttentionSinks<H, Style>: weight;
}
