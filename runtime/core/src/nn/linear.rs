//! Linear layer `y = x · W`: plain, column-parallel, row-parallel.

use std::marker::PhantomData;
use std::panic::Location;

use crate::layout::{
    Axis, AxisId, AxisSet, Dims, Ends, Enter, Entry, Feature, LocalFeature, ModelAxis, Seal,
    WholeFeature, With,
};
use crate::tensor::{
    Contraction, Init, Operand, Param, ParamRef, Reads, Tensor, contract, gradient_axes,
};

use super::adapter::Adapter;
use super::chain::stage_layers;
use super::debug::debug_layers;
use super::lora_options::LoraRank;
use super::{Build, Builder, Col, Layer, Plain, RegionExit, Row, Shard};

/// A linear layer without bias from the last dim (or pair of dims) `I` to `O`.
///
/// Shape: `[.., I] -> [.., O]`; `weight[I, O]`.
///
/// - plain: `x[.., I] -> y[.., O]`, the same computation on every rank;
/// - `#[sharded(tp = "col")]`: every rank computes its shard of `O`; `x` enters the tensor-parallel region (a
///   sequence-parallel stream is all-gathered, once for all layers that read it);
/// - `#[sharded(tp = "row")]`: every rank reads its shard of `I`; the partial sums are all-reduced, or with
///   `scatter = Seq` reduce-scattered.
///
/// With [`Sizes::lora`](super::Sizes::lora) the layer may have a low-rank adapter, in the same styles.
pub struct Linear<I, O, Style = Plain> {
    weight: ParamRef,
    adapter: Option<Adapter>,
    kind: PhantomData<(I, O, Style)>,
}

/// Computes `x · W` in the layer's style.
impl<I: WholeFeature, O: WholeFeature, Style, T: Operand<Shape: LinearInput<I, O, Style>>> Layer<T>
    for Linear<I, O, Style>
{
    type Out = Tensor<<T::Shape as LinearInput<I, O, Style>>::Out>;

    #[track_caller]
    fn forward(&self, x: &T) -> Self::Out {
        let how = Contraction {
            reads: Reads::First(I::DIMS.len()),
            entry: T::Shape::ENTRY,
            gradient_axes: T::Shape::GRADIENT_AXES,
            leaves: T::Shape::LEAVES,
        };
        let site = self.weight.site().clone().at_location(Location::caller());
        let x = x.operand().value();
        Tensor::from_untyped(match &self.adapter {
            Some(adapter) => adapter.contract(x, &self.weight, how, &site),
            None => contract(x, &self.weight, how, &site),
        })
    }
}

impl<I, O, Style> Linear<I, O, Style> {
    /// Returns the weight.
    pub(in crate::nn) fn weight(&self) -> &ParamRef {
        &self.weight
    }

    /// Declares the weight, shaped `S`, and the matrices of an adapter, shaped `A` and `B`.
    fn new<S: Dims, A: Dims, B: Dims>(builder: &mut Builder<'_>) -> Self {
        let std = builder.sizes().init_std;
        let weight: Param<S> = builder.param("weight", Init::Normal(std));
        let adapter = Adapter::declare::<A, B>(builder, S::READS);
        Linear { weight: weight.handle().clone(), adapter, kind: PhantomData }
    }
}

impl<I: LocalFeature, O: LocalFeature> Build for Linear<I, O, Plain>
where
    (I, O): Dims,
    (I, LoraRank): Dims,
    (LoraRank, O): Dims,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        Linear::new::<(I, O), (I, LoraRank), (LoraRank, O)>(builder)
    }
}

impl<I: LocalFeature, O: LocalFeature, A: ModelAxis> Build for Linear<I, O, Col<A>>
where
    (I, O::Split<A>): Dims,
    (I, LoraRank): Dims,
    (LoraRank, O::Split<A>): Dims,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        Linear::new::<(I, O::Split<A>), (I, LoraRank), (LoraRank, O::Split<A>)>(builder)
    }
}

impl<I: LocalFeature, O: LocalFeature, A: ModelAxis, E> Build for Linear<I, O, Row<A, E>>
where
    (I::Split<A>, O): Dims,
    (I::Split<A>, LoraRank): Dims,
    (LoraRank, O): Dims,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        Linear::new::<(I::Split<A>, O), (I::Split<A>, LoraRank), (LoraRank, O)>(builder)
    }
}

#[diagnostic::do_not_recommend]
impl<I, O, A> Shard<Col<A>> for Linear<I, O> {
    type Sharded = Linear<I, O, Col<A>>;
}

#[diagnostic::do_not_recommend]
impl<I, O, A, E> Shard<Row<A, E>> for Linear<I, O> {
    type Sharded = Linear<I, O, Row<A, E>>;
}

stage_layers! {
    Linear<I, O, Style>;
}

/// Input shapes of a layer from `I` to `O` in `Style`: [`PlainInput`], [`ColumnInput`] or [`RowInput`].
#[diagnostic::on_unimplemented(
    message = "`Linear<{I}, {O}, {Style}>` is not a layer",
    label = "`{Style}` is not a sharding style",
    note = "a pair of dims is a tuple: `Linear<{I}, ({O}, {Style})>` writes one, `Linear<({I}, {O}), {Style}>` reads \
            one"
)]
pub trait LinearInput<I, O, Style>: Dims {
    /// Dims of the result.
    type Out: Dims;
    /// The operation on the input as it enters the region.
    const ENTRY: Entry = Entry::Stay;
    /// The axes over which the weight's gradient is partial.
    const GRADIENT_AXES: AxisSet;
    /// The axis over which results are reduced, and the dim along which they are scattered.
    const LEAVES: Option<(AxisId, Option<usize>)> = None;
}

impl<X: PlainInput<I, O>, I, O> LinearInput<I, O, Plain> for X {
    type Out = X::Out;
    const GRADIENT_AXES: AxisSet = X::GRADIENT_AXES;
}

impl<X: ColumnInput<I, O, A>, I, O, A> LinearInput<I, O, Col<A>> for X {
    type Out = X::Out;
    const ENTRY: Entry = X::ENTRY;
    const GRADIENT_AXES: AxisSet = X::GRADIENT_AXES;
}

impl<X: RowInput<I, O, A, E>, I, O, A: Axis, E> LinearInput<I, O, Row<A, E>> for X {
    type Out = X::Out;
    const GRADIENT_AXES: AxisSet = X::GRADIENT_AXES;
    const LEAVES: Option<(AxisId, Option<usize>)> = Some((A::ID, X::SCATTER));
}

/// Input shapes of a plain layer from `I` to `O`.
#[diagnostic::on_unimplemented(
    message = "a layer from `{I}` to `{O}` without sharding cannot take an activation shaped `{Self}`",
    label = "its input must end in a whole `{I}`",
    note = "if the activation is split along `{I}`, make this layer row-parallel: `#[sharded(tp = \"row\")]`; if the \
            dims of this layer are swapped, write `Linear<{O}, {I}>`",
    note = "if it ends in another dim, the layer does not belong here"
)]
pub trait PlainInput<I, O>: Dims {
    /// Dims of the result.
    type Out: Dims;
    /// The axes over which the weight's gradient is partial.
    const GRADIENT_AXES: AxisSet;
    #[doc(hidden)]
    const SEAL: Seal;
}

#[diagnostic::do_not_recommend]
impl<X: Ends<I>, I: WholeFeature, O: WholeFeature> PlainInput<I, O> for X
where
    X::Lead: With<O>,
{
    type Out = <X::Lead as With<O>>::Out;
    const GRADIENT_AXES: AxisSet = gradient_axes(X::VARIES, Self::Out::VARIES, AxisSet::NONE);
    const SEAL: Seal = Seal::new();
}

/// Input shapes of a column-parallel layer from `I` to `O` over `A`.
#[diagnostic::on_unimplemented(
    message = "a column-parallel layer from `{I}` to `{O}` cannot take an activation shaped `{Self}`",
    label = "its input must end in a whole `{I}`",
    note = "of two consecutive column-parallel layers, make the second one row-parallel: `#[sharded(tp = \"row\")]`; \
            if the dims of this layer are swapped, write `Linear<{O}, {I}>`",
    note = "of the other dims only the one before `{I}` may be split, over the axis of this layer, as in a \
            sequence-parallel stream; a dim that is split over another axis is gathered first, `.gather(Dim)`, or \
            distributed by its declaration: `Seq @ cp`"
)]
pub trait ColumnInput<I, O, A>: Dims {
    /// Dims of the result.
    type Out: Dims;
    /// The operation on the input as it enters the region.
    const ENTRY: Entry;
    /// The axes over which the weight's gradient is partial.
    const GRADIENT_AXES: AxisSet;
    #[doc(hidden)]
    const SEAL: Seal;
}

#[diagnostic::do_not_recommend]
impl<X: Ends<I>, I: WholeFeature, O: WholeFeature, A: Axis> ColumnInput<I, O, A> for X
where
    X::Lead: Enter<A>,
    <X::Lead as Enter<A>>::Inside: With<I> + With<O::Split<A>>,
{
    type Out = <<X::Lead as Enter<A>>::Inside as With<O::Split<A>>>::Out;
    const ENTRY: Entry = <X::Lead as Enter<A>>::ENTRY;
    const GRADIENT_AXES: AxisSet = gradient_axes(
        <<X::Lead as Enter<A>>::Inside as With<I>>::Out::VARIES,
        Self::Out::VARIES,
        <O::Split<A> as Feature>::VARIES,
    );
    const SEAL: Seal = Seal::new();
}

/// Input shapes of a row-parallel layer from `I` to `O` over `A` whose results are reduced by `E`.
#[diagnostic::on_unimplemented(
    message = "a row-parallel layer from `{I}` to `{O}` cannot take an activation shaped `{Self}`",
    label = "its input must end in a split `{I}`",
    note = "if its input is not split, make the layer before it column-parallel: `#[sharded(tp = \"col\")]`, or this \
            one plain; if the dims of this layer are swapped, write `Linear<{O}, {I}>`"
)]
pub trait RowInput<I, O, A, E>: Dims {
    /// Dims of the result.
    type Out: Dims;
    /// The axes over which the weight's gradient is partial.
    const GRADIENT_AXES: AxisSet;
    /// The dim along which the result is scattered.
    const SCATTER: Option<usize>;
    #[doc(hidden)]
    const SEAL: Seal;
}

#[diagnostic::do_not_recommend]
impl<X, I: WholeFeature, O: WholeFeature, A: Axis, E> RowInput<I, O, A, E> for X
where
    X: Ends<I::Split<A>>,
    X::Lead: With<O>,
    E: RegionExit<X::Lead, O, A>,
{
    type Out = E::Out;
    const GRADIENT_AXES: AxisSet = gradient_axes(
        X::VARIES,
        <X::Lead as With<O>>::Out::VARIES,
        <I::Split<A> as Feature>::VARIES,
    );
    const SCATTER: Option<usize> = E::SCATTER;
    const SEAL: Seal = Seal::new();
}

debug_layers! {
    Linear<I, O, Style>: weight;
}
