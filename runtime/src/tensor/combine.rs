//! `+`, `-` and `*` between tensors, between partial sums, and between a tensor and a parameter over its trailing dims.

use std::marker::PhantomData;
use std::ops::{Add, Mul, Sub};

use crate::autograd::{Binary, Pointwise, Unary, Value, gradient_axes};
use crate::fsdp::ParamRef;
use crate::layout::{AxisGroup, AxisSet, Dim, Dims, Ends, SameShape};
use crate::mesh::check_sizes;

use super::in_flight::Arrived;
use super::typed::note_number;
use super::{InFlight, Param, Partial, Tensor};

/// What can be added to, or subtracted from, a tensor `Self`: a tensor of its shape, a parameter over its trailing dims, or
/// a number.
#[diagnostic::on_unimplemented(
    message = "`{Self}` and `{R}` cannot be added",
    label = "not a tensor of the same shape, a parameter over its trailing dims, or an `f32`"
)]
pub trait Combine<R>: Sized {
    #[doc(hidden)]
    #[track_caller]
    fn combine(&self, right: &R, op: Sign) -> Self;
}

/// What a tensor `Self` can be multiplied by: a tensor of its shape, a parameter over its trailing dims, or a number.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be multiplied by `{R}`",
    label = "not a tensor of the same shape, a parameter over its trailing dims, or an `f32`"
)]
pub trait Product<R>: Sized {
    #[doc(hidden)]
    #[track_caller]
    fn product(&self, right: &R) -> Self;
}

/// What can be added to, or subtracted from, a partial sum `Self`: a partial sum of the same shape over the same axis.
#[diagnostic::on_unimplemented(
    message = "`{R}` cannot be added to a partial sum, `{Self}`",
    label = "a value would be counted once per rank",
    note = "reduce the partial sum first, then add: `.all_reduce()`, or `.reduce_scatter(Dim)` for a sequence-parallel stream"
)]
pub trait Accumulate<R>: Sized {
    #[doc(hidden)]
    #[track_caller]
    fn accumulate(&self, right: &R, op: Sign) -> Self;
}

/// What a partial sum `Self` can be multiplied by: a number.
#[diagnostic::on_unimplemented(
    message = "a partial sum, `{Self}`, can be multiplied by a number only",
    label = "the products of the addends do not add up to the product of the sum",
    note = "reduce the partial sum first, then multiply: `.all_reduce()`, or `.reduce_scatter(Dim)` for a sequence-parallel stream"
)]
pub trait Scale<R>: Sized {
    #[doc(hidden)]
    #[track_caller]
    fn scale(&self, right: &R) -> Self;
}

/// What can stand on the right of `+`, `-` and `*` after a tensor.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be added to a tensor, subtracted from it or multiplied with it",
    label = "not a tensor, a reference to a tensor or parameter, or an `f32`",
    note = "numbers beside tensors are `f32`: `x * 2.0`, `x * (n as f32)`",
    note = "an `Option` is opened first: `if let Some(y) = y {{ x + y }} else {{ x }}`"
)]
pub trait Right {
    /// What it stands for, without the reference.
    type Value;
    /// What comes out, where the tensor is shaped `S`.
    type Result<S: Dims>;
    #[doc(hidden)]
    fn combined(&self) -> &Self::Value;
    #[doc(hidden)]
    fn result<S: Dims>(tensor: Tensor<S>) -> Self::Result<S>;
}

/// Never implemented: the axis of partial sums that could be combined with values.
#[diagnostic::on_unimplemented(
    message = "a value cannot be combined with a partial sum, which is still to be summed over `{Self}`",
    label = "this would count the value once per rank",
    note = "reduce the partial sum first: `.all_reduce()`, or `.reduce_scatter(Dim)` for a sequence-parallel stream"
)]
pub trait TakesValues {
    #[doc(hidden)]
    fn never() -> !;
}

/// Never implemented: a parameter that could be moved out of its model.
#[diagnostic::on_unimplemented(
    message = "a parameter shaped `{Self}` is combined with a tensor by reference",
    label = "write `&` before the parameter: `x + &self.bias`",
    note = "the parameter belongs to the model, so it is borrowed; it stands on the right, and repeats along the leading dims of the tensor"
)]
pub trait TakenByValue {
    #[doc(hidden)]
    fn never() -> !;
}

/// Never implemented: what could stand on the right of an operator after a parameter shaped `P`.
#[diagnostic::on_unimplemented(
    message = "a parameter, here one shaped `{P}`, cannot stand on the left of `+`, `-` or `*`",
    label = "the tensor stands on the left, the parameter on the right",
    note = "write `x + &self.bias` and `x * &self.gain`; `bias - x` is `-(x - &bias)`",
    note = "two parameters meet in a tensor: `x * &self.gain * &self.scale`"
)]
pub trait AfterParam<P> {
    /// What would come out.
    type Out;
    #[doc(hidden)]
    fn never() -> Self::Out;
}

macro_rules! never_after_param {
    ($($operator:ident $method:ident;)*) => {$(
        /// Never applies; its bound says why.
        impl<P, R: AfterParam<P>> $operator<R> for Param<P> {
            type Output = R::Out;

            fn $method(self, _: R) -> R::Out {
                R::never()
            }
        }

        /// Never applies; its bound says why.
        impl<P, R: AfterParam<P>> $operator<R> for &Param<P> {
            type Output = R::Out;

            fn $method(self, _: R) -> R::Out {
                R::never()
            }
        }
    )*};
}

never_after_param! {
    Add add;
    Sub sub;
    Mul mul;
}

/// Added or subtracted.
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

impl<S: Dims + SameShape<T>, T: Dims> Combine<Tensor<T>> for Tensor<S> {
    #[track_caller]
    fn combine(&self, right: &Tensor<T>, op: Sign) -> Tensor<S> {
        binary(self, right.value(), op.into())
    }
}

impl<S: Trailing<P>, P: Dims> Combine<Param<P>> for Tensor<S> {
    #[track_caller]
    fn combine(&self, right: &Param<P>, op: Sign) -> Tensor<S> {
        with_param(self, right, op.into())
    }
}

impl<S: Dims + SameShape<T>, T: Dims> Product<Tensor<T>> for Tensor<S> {
    #[track_caller]
    fn product(&self, right: &Tensor<T>) -> Tensor<S> {
        binary(self, right.value(), Binary::Mul)
    }
}

impl<S: Trailing<P>, P: Dims> Product<Param<P>> for Tensor<S> {
    #[track_caller]
    fn product(&self, right: &Param<P>) -> Tensor<S> {
        with_param(self, right, Binary::Mul)
    }
}

#[diagnostic::do_not_recommend]
impl<S: Dims> Combine<f32> for Tensor<S> {
    #[track_caller]
    fn combine(&self, right: &f32, op: Sign) -> Tensor<S> {
        self.offset(match op {
            Sign::Plus => *right,
            Sign::Minus => -*right,
        })
    }
}

#[diagnostic::do_not_recommend]
impl<S: Dims> Product<f32> for Tensor<S> {
    #[track_caller]
    fn product(&self, right: &f32) -> Tensor<S> {
        Tensor::scale(self, *right)
    }
}

macro_rules! between_partials {
    ($($right:ty),*) => {$(
        #[diagnostic::do_not_recommend]
        impl<S: Dims, A: AxisGroup> Accumulate<$right> for Partial<S, A> {
            #[track_caller]
            fn accumulate(&self, right: &$right, op: Sign) -> Partial<S, A> {
                self.value().rank().check_same(right.value().rank());
                let sizes = |partial: &Partial<S, A>| partial.value().extents().to_vec();
                let (own, other) = (sizes(self), sizes(right));
                check_sizes(S::DIMS, ("the left partial sum", &own), ("the right one", &other));
                let sum = pointwise(self.value(), right.value().to_pointwise(), op.into());
                Partial::wrap(sum, self.site().clone())
            }
        }
    )*};
}

between_partials! { Partial<S, A>, &Partial<S, A> }

macro_rules! partial_by_number {
    ($($right:ty),*) => {$(
        #[diagnostic::do_not_recommend]
        impl<S: Dims, A: AxisGroup> Scale<$right> for Partial<S, A> {
            #[track_caller]
            fn scale(&self, right: &$right) -> Partial<S, A> {
                let factor = right.mul(1.0);
                note_number::<S>(self.value().rank(), "multiplied by", factor);
                let scaled = self.value().to_pointwise().unary(Unary::Scale(factor));
                let extents = self.value().extents().to_vec();
                let value = Value::deferred(self.value().rank(), extents, scaled);
                Partial::wrap(value, self.site().clone())
            }
        }
    )*};
}

partial_by_number! { f32, &f32 }

macro_rules! right {
    ($(<$($param:ident $(: $bound:ident)?),*> $right:ty => $value:ty, |$this:ident| $get:expr;)*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($param $(: $bound)?),*> Right for $right {
            type Value = $value;
            type Result<S: Dims> = Tensor<S>;

            fn combined(&self) -> &$value {
                let $this = self;
                $get
            }

            fn result<S: Dims>(tensor: Tensor<S>) -> Tensor<S> {
                tensor
            }
        }
    )*};
}

right! {
    <T> Tensor<T> => Tensor<T>, |tensor| tensor;
    <T> &Tensor<T> => Tensor<T>, |tensor| tensor;
    <P> &Param<P> => Param<P>, |param| param;
    <> f32 => f32, |number| number;
    <T> InFlight<T> => InFlight<T>, |in_flight| in_flight;
    <T> &InFlight<T> => InFlight<T>, |in_flight| in_flight;
    <P> Param<P> => Moved<P>, |_param| &Moved(PhantomData);
}

/// Nothing can be combined with them; would it be, a partial sum came out.
macro_rules! right_partials {
    ($($right:ty),*) => {$(
        #[diagnostic::do_not_recommend]
        impl<T, A: AxisGroup> Right for $right {
            type Value = Partial<T, A>;
            type Result<S: Dims> = Partial<S, A>;

            fn combined(&self) -> &Partial<T, A> {
                self
            }

            fn result<S: Dims>(_: Tensor<S>) -> Partial<S, A> {
                unreachable!("no tensor is combined with a partial sum")
            }
        }
    )*};
}

right_partials! { Partial<T, A>, &Partial<T, A> }

/// A parameter that is given by value.
#[derive(Debug)]
pub struct Moved<P>(PhantomData<P>);

/// What is still to be summed, or still under way, or moved: never applies, and its bound says what to do.
macro_rules! never_combined {
    ($(<$($param:ident $(: $bound:ident)?),+> $right:ty; $reason:ty: $rule:ident;)*) => {$(
        impl<S: Dims, $($param $(: $bound)?),*> Combine<$right> for Tensor<S>
        where
            $reason: $rule,
        {
            fn combine(&self, _: &$right, _: Sign) -> Tensor<S> {
                <$reason as $rule>::never()
            }
        }

        impl<S: Dims, $($param $(: $bound)?),*> Product<$right> for Tensor<S>
        where
            $reason: $rule,
        {
            fn product(&self, _: &$right) -> Tensor<S> {
                <$reason as $rule>::never()
            }
        }
    )*};
}

never_combined! {
    <T, A: AxisGroup> Partial<T, A>; A: TakesValues;
    <T> InFlight<T>; InFlight<T>: Arrived;
    <P> Moved<P>; P: TakenByValue;
}

/// A shape whose trailing dims are those of `P`, split alike.
#[diagnostic::on_unimplemented(
    message = "a parameter shaped `{P}` does not fit the trailing dims of `{Self}`",
    label = "the trailing dims differ, or are split differently",
    note = "a parameter repeats along the leading dims of a tensor, and has its last dim or its last two, split alike",
    note = "the bias of a column-parallel layer is split with it: put `#[sharded(tp = \"col\")]` on its field, too"
)]
pub trait Trailing<P>: Dims {}

#[diagnostic::do_not_recommend]
impl<S: Ends<D>, D: Dim> Trailing<(D,)> for S {}
#[diagnostic::do_not_recommend]
impl<S: Ends<(D, E)>, D: Dim, E: Dim> Trailing<(D, E)> for S {}
#[diagnostic::do_not_recommend]
impl<S: Ends<(D, E)>, D: Dim, E: Dim> Trailing<((D, E),)> for S {}

#[track_caller]
fn binary<S: Dims>(left: &Tensor<S>, right: &Value, op: Binary) -> Tensor<S> {
    left.rank().check_same(right.rank());
    check_sizes(
        S::DIMS,
        ("the left side", left.local_extents()),
        ("the right side", right.extents()),
    );
    Tensor::wrap(pointwise(left.value(), right.to_pointwise(), op))
}

#[track_caller]
fn with_param<S: Dims, P: Dims>(left: &Tensor<S>, right: &Param<P>, op: Binary) -> Tensor<S> {
    combine_param(left, right.handle(), gradient_axes(S::VARIES, S::VARIES, P::VARIES), op)
}

/// `left + right`, `right` repeated along the leading dims; its gradient is partial over `axes`.
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
    left.rank().check_same(right.rank());
    right.check_trailing(left.local_extents());
    Tensor::wrap(pointwise(left.value(), Pointwise::param(right, axes), op))
}

#[track_caller]
fn pointwise(left: &Value, right: Pointwise, op: Binary) -> Value {
    Value::deferred(left.rank(), left.extents().to_vec(), left.to_pointwise().binary(right, op))
}

macro_rules! tensor_operators {
    ($($operator:ident $method:ident $rule:ident ($apply:ident $(, $op:expr)?);)*) => {$(
        impl<S: Dims, R: Right> $operator<R> for Tensor<S>
        where
            Tensor<S>: $rule<R::Value>,
        {
            type Output = R::Result<S>;

            #[track_caller]
            fn $method(self, right: R) -> R::Result<S> {
                R::result($rule::$apply(&self, right.combined() $(, $op)?))
            }
        }

        impl<S: Dims, R: Right> $operator<R> for &Tensor<S>
        where
            Tensor<S>: $rule<R::Value>,
        {
            type Output = R::Result<S>;

            #[track_caller]
            fn $method(self, right: R) -> R::Result<S> {
                R::result($rule::$apply(self, right.combined() $(, $op)?))
            }
        }
    )*};
}

tensor_operators! {
    Add add Combine (combine, Sign::Plus);
    Sub sub Combine (combine, Sign::Minus);
    Mul mul Product (product);
}

macro_rules! partial_operators {
    ($($operator:ident $method:ident $rule:ident ($apply:ident $(, $op:expr)?);)*) => {$(
        impl<S: Dims, A: AxisGroup, R> $operator<R> for Partial<S, A>
        where
            Partial<S, A>: $rule<R>,
        {
            type Output = Partial<S, A>;

            #[track_caller]
            fn $method(self, right: R) -> Partial<S, A> {
                $rule::$apply(&self, &right $(, $op)?)
            }
        }

        impl<S: Dims, A: AxisGroup, R> $operator<R> for &Partial<S, A>
        where
            Partial<S, A>: $rule<R>,
        {
            type Output = Partial<S, A>;

            #[track_caller]
            fn $method(self, right: R) -> Partial<S, A> {
                $rule::$apply(self, &right $(, $op)?)
            }
        }
    )*};
}

partial_operators! {
    Add add Accumulate (accumulate, Sign::Plus);
    Sub sub Accumulate (accumulate, Sign::Minus);
    Mul mul Scale (scale);
}
