//! Contraction of a tensor with a weight: the types determine whether the result is a tensor or a partial sum.

use std::panic::Location;

use crate::autograd::{Contraction, Reads, Value, contract, gradient_axes};
use crate::layout::{
    Axis, AxisGroup, AxisSet, Dim, Dims, Ends, Enter, Entry, Feature, Internal, Split, Whole,
    WholeFeature, With,
};
use meshwright_comm::Site;

use super::{Param, Partial, Tensor};

/// `y[.., O] = sum over I of x[.., I] · w[I, O]`, for a tensor shaped `Self` and a weight shaped `W = (I, O)`.
///
/// | `I` | `O` | result |
/// |---|---|---|
/// | whole | whole | a value |
/// | whole | split over `A` | a value split over `A`; `x` enters the region of `A` |
/// | split over `A` in both | whole | a partial sum over `A` |
#[diagnostic::on_unimplemented(
    message = "a tensor shaped `{Self}` cannot be contracted with a weight shaped `{W}`",
    label = "the dims do not fit",
    note = "the tensor must end in the dim that the weight begins with, split in both or in neither",
    note = "a weight that writes a split dim takes a tensor that is not yet split over that axis, or only along the \
            dim before the last: gather it, or reduce it first",
    note = "a weight of which other dims are summed is a tensor: `x.dot(&self.weight.tensor(), Dim, ())`"
)]
pub trait Contract<W>: Dims {
    /// [`Tensor`] or [`Partial`].
    type Out: FromValue;
    /// Entry of the tensor into the tensor-parallel region of the contraction.
    const ENTRY: Entry;
    /// The axes over which the weight's gradient is partial.
    const GRADIENT_AXES: AxisSet;
    /// Number of dims that are summed over.
    const CONTRACTED: usize;
}

/// Typed result of an operation on untyped values.
pub trait FromValue {
    #[doc(hidden)]
    fn from_value(value: Value, site: Site, internal: Internal) -> Self;
}

impl<S: Dims> FromValue for Tensor<S> {
    fn from_value(value: Value, _: Site, _: Internal) -> Self {
        Tensor::from_untyped(value)
    }
}

impl<S: Dims, A: AxisGroup> FromValue for Partial<S, A> {
    fn from_value(value: Value, site: Site, _: Internal) -> Self {
        Partial::from_untyped(value, site)
    }
}

type Put<L, O> = <L as With<O>>::Out;

#[diagnostic::do_not_recommend]
impl<X, I, O> Contract<(I, O)> for X
where
    X: Ends<I>,
    I: WholeFeature,
    O: WholeFeature,
    X::Lead: With<O>,
{
    type Out = Tensor<Put<X::Lead, O>>;
    const ENTRY: Entry = Entry::Stay;
    const GRADIENT_AXES: AxisSet =
        gradient_axes(X::VARIES, Put::<X::Lead, O>::VARIES, AxisSet::NONE);
    const CONTRACTED: usize = I::DIMS.len();
}

macro_rules! split_output {
    ($(<$($dim:ident: $bound:ident),+> $out:ty;)*) => {$(
        #[diagnostic::do_not_recommend]
        impl<X, I, A: Axis, $($dim: $bound),+> Contract<(I, $out)> for X
        where
            X: Ends<I>,
            I: WholeFeature,
            X::Lead: Enter<A>,
            <X::Lead as Enter<A>>::Inside: With<I> + With<$out>,
        {
            type Out = Tensor<Put<<X::Lead as Enter<A>>::Inside, $out>>;
            const ENTRY: Entry = <X::Lead as Enter<A>>::ENTRY;
            const GRADIENT_AXES: AxisSet = gradient_axes(
                Put::<<X::Lead as Enter<A>>::Inside, I>::VARIES,
                Put::<<X::Lead as Enter<A>>::Inside, $out>::VARIES,
                <$out as Feature>::VARIES,
            );
            const CONTRACTED: usize = I::DIMS.len();
        }
    )*};
}

split_output! {
    <D: Whole> Split<D, A>;
    <D: Whole, E: Dim> (Split<D, A>, E);
}

macro_rules! split_input {
    ($(<$($dim:ident: $bound:ident),+> $input:ty;)*) => {$(
        #[diagnostic::do_not_recommend]
        impl<X, O, A: Axis, $($dim: $bound),+> Contract<($input, O)> for X
        where
            X: Ends<$input>,
            O: WholeFeature,
            X::Lead: With<O>,
        {
            type Out = Partial<Put<X::Lead, O>, A>;
            const ENTRY: Entry = Entry::Stay;
            const GRADIENT_AXES: AxisSet =
                gradient_axes(X::VARIES, Put::<X::Lead, O>::VARIES, <$input as Feature>::VARIES);
            const CONTRACTED: usize = <$input as Feature>::DIMS.len();
        }
    )*};
}

split_input! {
    <D: Whole> Split<D, A>;
    <D: Whole, E: Dim> (Split<D, A>, E);
}

/// The weight of a contraction: a parameter.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a parameter, so a tensor cannot be contracted with it",
    label = "not a `Param`",
    note = "`x.contract(&self.weight)` takes a field `weight: Param<(Hidden, Ffn)>` of the model; a layer has a \
            `forward`",
    note = "two tensors are not multiplied as matrices: `Attention` does so with queries, keys and values, and a type \
            that implements `Function` with any"
)]
pub trait ContractionWeight {
    /// Shape of the parameter.
    type Shape: Dims;
    #[doc(hidden)]
    fn param(&self) -> &Param<Self::Shape>;
}

#[diagnostic::do_not_recommend]
impl<W: Dims> ContractionWeight for Param<W> {
    type Shape = W;

    fn param(&self) -> &Param<W> {
        self
    }
}

impl<S: Dims> Tensor<S> {
    /// Contracts the last dim (or pair of dims) of `self` with the first of `weight`.
    ///
    /// Shape: `[.., I]` and `weight[I, O]` to `[.., O]`.
    ///
    /// If both are split over an axis the result is a [`Partial`] sum over it; if only the weight's output is, `self`
    /// enters the tensor-parallel region of the axis. [`Contract`] lists the cases.
    #[track_caller]
    pub fn contract<W: ContractionWeight>(&self, weight: &W) -> S::Out
    where
        S: Contract<W::Shape>,
    {
        let weight = weight.param();
        let site = weight.handle().site().clone().at_location(Location::caller());
        let how = Contraction {
            reads: Reads::First(S::CONTRACTED),
            entry: S::ENTRY,
            gradient_axes: S::GRADIENT_AXES,
            leaves: None,
        };
        let value = contract(self.value(), weight.handle(), how, &site);
        S::Out::from_value(value, site, Internal::new())
    }
}
