//! Rules of `+`, `-`, `*` and `/` between tensors, between partial sums, and between a tensor and a parameter over its
//! trailing dims.

use std::marker::PhantomData;

use crate::autograd::{Binary, Pointwise, Unary, Value, gradient_axes};
use crate::context::Rank;
use crate::fsdp::ParamRef;
use crate::layout::{AxisGroup, AxisSet, Dim, Dims, Ends, SameShape, Seal};

use super::broadcast::{Side, meet};
use super::in_flight::Arrived;
use super::typed::note_number;
use super::{InFlight, Param, Partial, Tensor};

/// Sum or difference of a tensor `Self` and a tensor that [fits it](SameShape), a parameter over its trailing
/// dims, or a number.
#[diagnostic::on_unimplemented(
    message = "`{Self}` and `{R}` cannot be added",
    label = "not a tensor, a parameter over the trailing dims of the tensor, or an `f32`"
)]
pub trait Combine<R>: Sized {
    /// The shape of the result.
    type Out: Dims;
    #[doc(hidden)]
    #[track_caller]
    fn add_signed(&self, right: &R, op: Sign) -> Tensor<Self::Out>;
}

/// Elementwise product of a tensor `Self` and a tensor that [fits it](SameShape), a parameter over its trailing
/// dims, or a number.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be multiplied by `{R}`",
    label = "not a tensor, a parameter over the trailing dims of the tensor, or an `f32`"
)]
pub trait Product<R>: Sized {
    /// The shape of the result.
    type Out: Dims;
    #[doc(hidden)]
    #[track_caller]
    fn multiply_by(&self, right: &R) -> Tensor<Self::Out>;
}

/// Elementwise quotient of a tensor `Self` and a tensor that [fits it](SameShape), a parameter over its trailing
/// dims, or a number.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be divided by `{R}`",
    label = "not a tensor, a parameter over the trailing dims of the tensor, or an `f32`"
)]
pub trait Quotient<R>: Sized {
    /// The shape of the result.
    type Out: Dims;
    #[doc(hidden)]
    #[track_caller]
    fn divide_by(&self, right: &R) -> Tensor<Self::Out>;
}

/// Right operand of `+` and `-` after a partial sum `P`: a partial sum of the same shape over the same axis.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be added to a partial sum, `{P}`",
    label = "not a partial sum of the same shape over the same axis: a value would be counted once per rank",
    note = "reduce the partial sum first, then add: `.all_reduce()`, or `.reduce_scatter(Dim)` for a sequence-parallel \
            stream"
)]
pub trait Accumulate<P> {
    #[doc(hidden)]
    #[track_caller]
    fn accumulate(&self, left: &P, op: Sign) -> P;
}

/// Right operand of `*` and `/` after a partial sum `P`: a number.
#[diagnostic::on_unimplemented(
    message = "a partial sum, `{P}`, can be multiplied or divided by a number only",
    label = "the products or quotients of the partial sums do not add up to that of the sum",
    note = "reduce the partial sum first, then multiply or divide: `.all_reduce()`, or `.reduce_scatter(Dim)` for a \
            sequence-parallel stream"
)]
pub trait Scale<P> {
    #[doc(hidden)]
    #[track_caller]
    fn multiply_by_scalar(&self, left: &P) -> P;
    #[doc(hidden)]
    #[track_caller]
    fn divide_by_scalar(&self, left: &P) -> P;
}

/// The shape of a result that replaces a left side shaped `S`, in `+=` and its like: `S`.
#[diagnostic::on_unimplemented(
    message = "the left side, shaped `{S}`, would become `{Self}`",
    label = "the right side has dims that the left side does not have, and a variable keeps its type",
    note = "write the operation as `let y = x + &z`, whose result is a new tensor; a number or a tensor with the dims \
            of the left side can be combined in place"
)]
pub trait Keeps<S>: Dims {
    #[doc(hidden)]
    const SEAL: Seal;
}

#[diagnostic::do_not_recommend]
impl<S: Dims> Keeps<S> for S {
    const SEAL: Seal = Seal::new();
}

/// Never implemented: the axis of partial sums that could be combined with values.
#[diagnostic::on_unimplemented(
    message = "a value cannot be combined with a partial sum, which is still to be summed over `{Self}`",
    label = "this would count the value once per rank",
    note = "reduce the partial sum first: `.all_reduce()`, or `.reduce_scatter(Dim)` for a sequence-parallel stream"
)]
pub trait TakesValues {
    #[doc(hidden)]
    fn never_implemented() -> !;
}

/// Never implemented: a parameter that could be moved out of its model.
#[diagnostic::on_unimplemented(
    message = "a parameter shaped `{Self}` is combined with a tensor by reference",
    label = "write `&` before the parameter: `x + &self.bias`",
    note = "the parameter belongs to the model, so it is borrowed; it is the right operand, and repeats along the \
            leading dims of the tensor"
)]
pub trait TakenByValue {
    #[doc(hidden)]
    fn never_implemented() -> !;
}

/// Sign of the right operand of a sum.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub enum Sign {
    /// `+`
    Plus,
    /// `-`
    Minus,
}

impl From<Sign> for Binary {
    fn from(sign: Sign) -> Binary {
        match sign {
            Sign::Plus => Binary::Add,
            Sign::Minus => Binary::Sub,
        }
    }
}

impl<S: Dims + SameShape<T>, T: Dims> Combine<Tensor<T>> for Tensor<S>
where
    Combined<S, T>: Dims,
{
    type Out = Combined<S, T>;

    #[track_caller]
    fn add_signed(&self, right: &Tensor<T>, op: Sign) -> Tensor<Self::Out> {
        apply_binary(self, right, op.into())
    }
}

impl<S: Trailing<P>, P: Dims> Combine<Param<P>> for Tensor<S> {
    type Out = S;

    #[track_caller]
    fn add_signed(&self, right: &Param<P>, op: Sign) -> Tensor<S> {
        with_param(self, right, op.into())
    }
}

impl<S: Dims + SameShape<T>, T: Dims> Product<Tensor<T>> for Tensor<S>
where
    Combined<S, T>: Dims,
{
    type Out = Combined<S, T>;

    #[track_caller]
    fn multiply_by(&self, right: &Tensor<T>) -> Tensor<Self::Out> {
        apply_binary(self, right, Binary::Mul)
    }
}

impl<S: Trailing<P>, P: Dims> Product<Param<P>> for Tensor<S> {
    type Out = S;

    #[track_caller]
    fn multiply_by(&self, right: &Param<P>) -> Tensor<S> {
        with_param(self, right, Binary::Mul)
    }
}

impl<S: Dims + SameShape<T>, T: Dims> Quotient<Tensor<T>> for Tensor<S>
where
    Combined<S, T>: Dims,
{
    type Out = Combined<S, T>;

    #[track_caller]
    fn divide_by(&self, right: &Tensor<T>) -> Tensor<Self::Out> {
        apply_binary(self, right, Binary::Div)
    }
}

impl<S: Trailing<P>, P: Dims> Quotient<Param<P>> for Tensor<S> {
    type Out = S;

    #[track_caller]
    fn divide_by(&self, right: &Param<P>) -> Tensor<S> {
        with_param(self, right, Binary::Div)
    }
}

#[diagnostic::do_not_recommend]
impl<S: Dims> Combine<f32> for Tensor<S> {
    type Out = S;

    #[track_caller]
    fn add_signed(&self, right: &f32, op: Sign) -> Tensor<S> {
        self.offset(match op {
            Sign::Plus => *right,
            Sign::Minus => -*right,
        })
    }
}

#[diagnostic::do_not_recommend]
impl<S: Dims> Product<f32> for Tensor<S> {
    type Out = S;

    #[track_caller]
    fn multiply_by(&self, right: &f32) -> Tensor<S> {
        Tensor::scale(self, *right)
    }
}

#[diagnostic::do_not_recommend]
impl<S: Dims> Quotient<f32> for Tensor<S> {
    type Out = S;

    #[track_caller]
    fn divide_by(&self, right: &f32) -> Tensor<S> {
        note_number::<S>(self.rank(), "divided by", *right);
        self.apply_unary(quotient_by(*right))
    }
}

/// Returns the division by `divisor`: the product with its reciprocal, unless that is not a normal number and would be
/// rounded to few bits, to zero or to infinity.
pub(super) fn quotient_by(divisor: f32) -> Unary {
    let reciprocal = 1.0 / divisor;
    if reciprocal.is_normal() { Unary::Scale(reciprocal) } else { Unary::DivideBy(divisor) }
}

/// A parameter passed by value.
#[derive(Debug)]
pub struct Moved<P>(pub(super) PhantomData<P>);

/// Rules for partial sums, tensors in flight and moved parameters: never apply, and the messages of their bounds
/// explain what to do.
macro_rules! never_combined {
    ($(<$($param:ident $(: $bound:ident)?),+> $right:ty; $reason:ty: $rule:ident;)*) => {$(
        impl<S: Dims, $($param $(: $bound)?),*> Combine<$right> for Tensor<S>
        where
            $reason: $rule,
        {
            type Out = S;

            fn add_signed(&self, _: &$right, _: Sign) -> Tensor<S> {
                <$reason as $rule>::never_implemented()
            }
        }

        impl<S: Dims, $($param $(: $bound)?),*> Product<$right> for Tensor<S>
        where
            $reason: $rule,
        {
            type Out = S;

            fn multiply_by(&self, _: &$right) -> Tensor<S> {
                <$reason as $rule>::never_implemented()
            }
        }

        impl<S: Dims, $($param $(: $bound)?),*> Quotient<$right> for Tensor<S>
        where
            $reason: $rule,
        {
            type Out = S;

            fn divide_by(&self, _: &$right) -> Tensor<S> {
                <$reason as $rule>::never_implemented()
            }
        }
    )*};
}

never_combined! {
    <T, A: AxisGroup> Partial<T, A>; A: TakesValues;
    <T> InFlight<T>; InFlight<T>: Arrived;
    <P> Moved<P>; P: TakenByValue;
}

/// A shape that ends with the dims of `P`, split alike.
#[diagnostic::on_unimplemented(
    message = "a parameter shaped `{P}` does not fit the trailing dims of `{Self}`",
    label = "the trailing dims differ, or are split differently",
    note = "a parameter repeats along the leading dims of a tensor, and has its last dim or its last two, split alike",
    note = "over other dims, or in another order, it is a tensor: `x * &self.scale.tensor()`",
    note = "the bias of a column-parallel layer is split with it: put `#[sharded(tp = \"col\")]` on its field, too"
)]
pub trait Trailing<P>: Dims {}

#[diagnostic::do_not_recommend]
impl<S: Ends<D>, D: Dim> Trailing<(D,)> for S {}
#[diagnostic::do_not_recommend]
impl<S: Ends<(D, E)>, D: Dim, E: Dim> Trailing<(D, E)> for S {}
#[diagnostic::do_not_recommend]
impl<S: Ends<(D, E)>, D: Dim, E: Dim> Trailing<((D, E),)> for S {}

/// The shape of the result of an elementwise operation on tensors shaped `S` and `T`.
pub(super) type Combined<S, T> = <S as SameShape<T>>::Combined;

/// Combines two tensors, of which one may be repeated along dims that only the other has.
#[track_caller]
pub(super) fn apply_binary<S: Dims + SameShape<T>, T: Dims>(
    left: &Tensor<S>,
    right: &Tensor<T>,
    op: Binary,
) -> Tensor<Combined<S, T>>
where
    Combined<S, T>: Dims,
{
    let left = Side::new(left.value(), S::DIMS, <S as SameShape<T>>::LEFT_PLACES);
    let right = Side::new(right.value(), T::DIMS, <S as SameShape<T>>::RIGHT_PLACES);
    let varies = <Combined<S, T> as Dims>::VARIES;
    let axes = [varies.difference(S::VARIES), varies.difference(T::VARIES)];
    let (rank, extents, [left, right]) = meet([left, right], axes);
    Tensor::from_untyped(Value::deferred(&rank, extents, left.binary(right, op)))
}

#[track_caller]
fn with_param<S: Dims, P: Dims>(left: &Tensor<S>, right: &Param<P>, op: Binary) -> Tensor<S> {
    combine_param(left, right.handle(), gradient_axes(S::VARIES, S::VARIES, P::VARIES), op)
}

/// Returns `left + right`, with `right` repeated along the leading dims; its gradient is partial over `axes`.
#[track_caller]
pub(crate) fn add_param<S: Dims>(left: &Tensor<S>, right: &ParamRef, axes: AxisSet) -> Tensor<S> {
    combine_param(left, right, axes, Binary::Add)
}

#[track_caller]
fn combine_param<S: Dims>(
    left: &Tensor<S>,
    right: &ParamRef,
    axes: AxisSet,
    op: Binary,
) -> Tensor<S> {
    let left = left.value();
    left.rank().check_same(right.rank());
    right.check_trailing(left.extents());
    let pointwise = left.to_pointwise().binary(Pointwise::param(right, axes), op);
    Tensor::from_untyped(Value::deferred(left.rank(), left.extents().to_vec(), pointwise))
}

/// Combines two values of the same extents.
#[track_caller]
pub(super) fn pointwise_of(left: &Value, right: &Value, op: Binary) -> Value {
    let rank = Rank::of_operands([left.rank(), right.rank()]).expect("there are two operands");
    let pointwise = left.to_pointwise().binary(right.to_pointwise(), op);
    Value::deferred(&rank, left.extents().to_vec(), pointwise)
}
