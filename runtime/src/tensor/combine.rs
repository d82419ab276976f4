//! `+`, `-` and `*` between tensors, between partial sums, and between a tensor and a parameter over its trailing dims.

use std::ops::{Add, Mul, Sub};

use crate::layout::{Axis, AxisSet, Dim, Ends, Shape};

use super::contract::gradient_axes;
use super::pointwise::{Binary, Pointwise, Unary};
use super::value::Value;
use super::{Param, ParamRef, Partial, Tensor};

/// What can be added to, or subtracted from, `Self`: operands of one shape and one state.
#[diagnostic::on_unimplemented(
    message = "`{Self}` and `{R}` cannot be added",
    label = "their dims, splits or states differ",
    note = "adding a value (a residual, a bias) to a partial sum would count it once per rank: first `.all_reduce()` or `.reduce_scatter(Dim)` the sum",
    note = "both sides must be split alike: a sequence-parallel stream and a plain one meet after `.gather(Dim)` or `.slice(Dim, Tp)`",
    note = "what an asynchronous collective brings is there after `.wait()`"
)]
pub trait Combine<R> {
    /// The result: a tensor, or a partial sum of partial sums.
    type Out;
    #[doc(hidden)]
    fn combine(&self, right: &R, op: Sign) -> Self::Out;
}

/// What `Self` can be multiplied by.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be multiplied by `{R}`",
    label = "their dims, splits or states differ",
    note = "a product with a partial sum is not the sum of products: first `.all_reduce()` or `.reduce_scatter(Dim)` it",
    note = "both sides must be split alike: a sequence-parallel stream and a plain one meet after `.gather(Dim)` or `.slice(Dim, Tp)`",
    note = "what an asynchronous collective brings is there after `.wait()`"
)]
pub trait Product<R> {
    /// The result.
    type Out;
    #[doc(hidden)]
    fn product(&self, right: &R) -> Self::Out;
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

macro_rules! between_tensors {
    ($($right:ty),*) => {$(
        impl<S: Shape> Combine<$right> for Tensor<S> {
            type Out = Tensor<S>;

            fn combine(&self, right: &$right, op: Sign) -> Tensor<S> {
                binary(self, right.value(), op.into())
            }
        }

        impl<S: Shape> Product<$right> for Tensor<S> {
            type Out = Tensor<S>;

            fn product(&self, right: &$right) -> Tensor<S> {
                binary(self, right.value(), Binary::Mul)
            }
        }
    )*};
}

between_tensors! { Tensor<S>, &Tensor<S> }

impl<S: Shape> Product<f32> for Tensor<S> {
    type Out = Tensor<S>;

    fn product(&self, right: &f32) -> Tensor<S> {
        self.scale(*right)
    }
}

impl<S: Trailing<P>, P: Shape> Combine<&Param<P>> for Tensor<S> {
    type Out = Tensor<S>;

    fn combine(&self, right: &&Param<P>, op: Sign) -> Tensor<S> {
        with_param(self, right, op.into())
    }
}

impl<S: Trailing<P>, P: Shape> Product<&Param<P>> for Tensor<S> {
    type Out = Tensor<S>;

    fn product(&self, right: &&Param<P>) -> Tensor<S> {
        with_param(self, right, Binary::Mul)
    }
}

impl<S: Shape, A: Axis> Combine<Partial<S, A>> for Partial<S, A> {
    type Out = Partial<S, A>;

    fn combine(&self, right: &Partial<S, A>, op: Sign) -> Partial<S, A> {
        let sum = pointwise(self.value(), right.value().to_pointwise(), op.into());
        Partial::wrap(sum, self.site().clone())
    }
}

impl<S: Shape, A: Axis> Product<f32> for Partial<S, A> {
    type Out = Partial<S, A>;

    fn product(&self, right: &f32) -> Partial<S, A> {
        let scaled = self.value().to_pointwise().unary(Unary::Scale(*right));
        let value = Value::deferred(self.value().rank(), self.value().extents().to_vec(), scaled);
        Partial::wrap(value, self.site().clone())
    }
}

/// A shape whose trailing dims are those of `P`, split alike.
#[diagnostic::on_unimplemented(
    message = "a parameter shaped `{P}` does not fit the trailing dims of `{Self}`",
    label = "the trailing dims differ, or are split differently",
    note = "a bias of a column-parallel layer is split with it: `#[sharded(tp = \"col\")] bias: Param<(Ffn,)>`"
)]
pub trait Trailing<P>: Shape {}

impl<S: Ends<D>, D: Dim> Trailing<(D,)> for S {}
impl<S: Ends<(D, E)>, D: Dim, E: Dim> Trailing<(D, E)> for S {}

fn binary<S: Shape>(left: &Tensor<S>, right: &Value, op: Binary) -> Tensor<S> {
    assert_eq!(left.extents(), right.extents(), "tensors of one type were given different sizes");
    Tensor::wrap(pointwise(left.value(), right.to_pointwise(), op))
}

fn with_param<S: Shape, P: Shape>(left: &Tensor<S>, right: &Param<P>, op: Binary) -> Tensor<S> {
    let axes = gradient_axes(S::VARIES, S::VARIES, P::VARIES);
    Tensor::wrap(pointwise(left.value(), Pointwise::param(right.handle(), axes), op))
}

/// `left + right`, `right` repeated along the leading dims; its gradient is partial over `axes`.
pub(crate) fn add_param<S: Shape>(left: &Tensor<S>, right: &ParamRef, axes: AxisSet) -> Tensor<S> {
    Tensor::wrap(pointwise(left.value(), Pointwise::param(right, axes), Binary::Add))
}

fn pointwise(left: &Value, right: Pointwise, op: Binary) -> Value {
    Value::deferred(left.rank(), left.extents().to_vec(), left.to_pointwise().binary(right, op))
}

macro_rules! operators {
    ($(<$($param:ident: $bound:ident),+> $left:ty;)*) => {$(
        operators!(@one Add add Combine (combine, Sign::Plus) <$($param: $bound),+> $left);
        operators!(@one Sub sub Combine (combine, Sign::Minus) <$($param: $bound),+> $left);
        operators!(@one Mul mul Product (product) <$($param: $bound),+> $left);
    )*};
    (@one $operator:ident $method:ident $rule:ident ($apply:ident $(, $op:expr)?)
        <$($param:ident: $bound:ident),+> $left:ty) => {
        impl<$($param: $bound,)+ R> $operator<R> for $left
        where
            $left: $rule<R>,
        {
            type Output = <$left as $rule<R>>::Out;

            fn $method(self, right: R) -> Self::Output {
                $rule::$apply(&self, &right $(, $op)?)
            }
        }

        impl<$($param: $bound,)+ R> $operator<R> for &$left
        where
            $left: $rule<R>,
        {
            type Output = <$left as $rule<R>>::Out;

            fn $method(self, right: R) -> Self::Output {
                $rule::$apply(self, &right $(, $op)?)
            }
        }
    };
}

operators! {
    <S: Shape> Tensor<S>;
    <S: Shape, A: Axis> Partial<S, A>;
}
