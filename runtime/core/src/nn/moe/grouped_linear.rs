//! Linear layers of experts, computed as grouped GEMMs: each expert has a weight, which reads the rows that were routed
//! to it.

use std::marker::PhantomData;

use crate::layout::{
    AxisSet, Dim, Dims, Here, LocalFeature, OnEveryRank, Routed, Seal, Split, SplitAxes, StackDim,
    Stacked, Whole,
};
use crate::tensor::{Init, Operand, Param, ParamRef, Tensor, gradient_axes};

use super::super::{Build, Builder, ByExpert, Layer, Plain, Shard};
use super::grouped_matmul::grouped_matmul;
use crate::nn::debug::debug_layers;

/// A linear layer without bias from `I` to `O`, a dim or a pair of dims, for each of the experts `E`.
///
/// Shape: `[rows, I] -> [rows, O]`; `weight[E, I, O]`.
///
/// It takes rows that were routed to the experts of this rank, `(Routed<L, E>, I)`, and computes each with the weight
/// of its expert:
/// - plain: every rank has all experts, for the rows of [`TokenRouting::group`](super::TokenRouting::group);
/// - `#[sharded(ep = "experts")]`: the ranks of `ep` have different experts, for the rows of [`routing.dispatch(x,
///   Ep)`](super::TokenRouting::dispatch). With `fold = [cp, tp]` the ranks of these axes have too:
///   `routing.dispatch(x, (Ep, Cp, Tp))`.
pub struct GroupedLinear<E, I, O, Style = Plain> {
    weight: ParamRef,
    kind: PhantomData<(E, I, O, Style)>,
}

/// Computes the rows of every expert of this rank with its weight.
impl<E, I, O, Style: SplitsExperts<E>, T: Operand<Shape: GroupedInput<Style::Own, I, O>>> Layer<T>
    for GroupedLinear<E, I, O, Style>
{
    type Out = Tensor<<T::Shape as GroupedInput<Style::Own, I, O>>::Out>;

    #[track_caller]
    fn forward(&self, x: &T) -> Self::Out {
        let axes = T::Shape::GRADIENT_AXES;
        Tensor::from_untyped(grouped_matmul(x.operand().value(), &self.weight, axes))
    }
}

/// A style, which states the experts that each rank has.
pub trait SplitsExperts<E> {
    /// The experts of a rank.
    type Own;
}

impl<E: Whole> SplitsExperts<E> for Plain {
    type Own = E;
}

impl<E: Whole, A: SplitAxes> SplitsExperts<E> for ByExpert<A> {
    type Own = Split<E, A>;
}

/// Shapes of rows that were routed to the experts `P` of this rank, for a layer from `I` to `O`.
#[diagnostic::on_unimplemented(
    message = "a layer of the experts `{P}` from `{I}` to `{O}` cannot take an activation shaped `{Self}`",
    label = "not rows of `{I}` that were routed to these experts",
    note = "rows come from a routing: `routing.group(&x)` for experts that every rank has, `routing.dispatch(&x, Ep)` \
            for `#[sharded(ep = \"experts\")]`, and `routing.dispatch(&x, (Ep, Tp))` with `fold = [tp]`",
    note = "all layers of one group of experts have the same annotation; if the dims of this one are swapped, write \
            `GroupedLinear<Experts, {O}, {I}>`"
)]
pub trait GroupedInput<P, I, O>: Dims {
    /// Dims of the result.
    type Out: Dims;
    /// The axes over which the weight's gradient is partial.
    const GRADIENT_AXES: AxisSet;
    #[doc(hidden)]
    const SEAL: Seal;
}

#[diagnostic::do_not_recommend]
impl<L: Dims, P: Dim, I: Whole<Home = Here>, O: Whole<Home = Here>> GroupedInput<P, I, O>
    for (Routed<L, P>, I)
{
    type Out = (Routed<L, P>, O);
    const GRADIENT_AXES: AxisSet = gradient_axes(Self::VARIES, Self::Out::VARIES, P::VARIES);
    const SEAL: Seal = Seal::new();
}

#[diagnostic::do_not_recommend]
impl<L: Dims, P: Dim, I: Whole<Home = Here>, F: Whole<Home = Here>, G: Whole<Home = Here>>
    GroupedInput<P, I, (F, G)> for (Routed<L, P>, I)
{
    type Out = (Routed<L, P>, F, G);
    const GRADIENT_AXES: AxisSet = gradient_axes(Self::VARIES, Self::Out::VARIES, P::VARIES);
    const SEAL: Seal = Seal::new();
}

impl<E: Whole, I: Whole, O: LocalFeature> Build for GroupedLinear<E, I, O, Plain>
where
    E::Home: OnEveryRank<E>,
    I::Home: OnEveryRank<I>,
    Stacked<E, I, O>: Dims,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        GroupedLinear::new::<Stacked<E, I, O>>(builder)
    }
}

impl<E: Whole, I: Whole, O: LocalFeature, A: SplitAxes> Build
    for GroupedLinear<E, I, O, ByExpert<A>>
where
    Split<E, A>: StackDim,
    I::Home: OnEveryRank<I>,
    Stacked<Split<E, A>, I, O>: Dims,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        GroupedLinear::new::<Stacked<Split<E, A>, I, O>>(builder)
    }
}

impl<E, I, O, Style> GroupedLinear<E, I, O, Style> {
    fn new<S: Dims>(builder: &mut Builder<'_>) -> Self {
        let std = builder.sizes().init_std;
        let weight: Param<S> = builder.param("weight", Init::Normal(std));
        GroupedLinear { weight: weight.handle().clone(), kind: PhantomData }
    }
}

#[diagnostic::do_not_recommend]
impl<E, I, O, A> Shard<ByExpert<A>> for GroupedLinear<E, I, O> {
    type Sharded = GroupedLinear<E, I, O, ByExpert<A>>;
}

debug_layers! {
    GroupedLinear<E, I, O, Style>: weight;
}
