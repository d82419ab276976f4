//! The operators `+`, `-`, `*` and `/` between tensors, partial sums, parameters and numbers, and `+=`, `-=`, `*=` and
//! `/=`, which replace the left side by the result.

use std::marker::PhantomData;
use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Sub, SubAssign};

use crate::layout::{AxisGroup, Dims};

use super::combine::{Accumulate, Combine, Keeps, Moved, Product, Quotient, Scale, Sign};
use super::{InFlight, Param, Partial, Tensor};

/// Right operand of `+`, `-`, `*` and `/` after a tensor.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an operand of `+`, `-`, `*` or `/` after a tensor",
    label = "not a tensor, a reference to a tensor or parameter, or an `f32`",
    note = "numbers in operations with tensors are `f32`: `x * 2.0`, `x / (n as f32)`",
    note = "an `Option` is opened first: `if let Some(y) = y {{ x + y }} else {{ x }}`"
)]
pub trait Right {
    /// The operand without the reference.
    type Value;
    /// The result for a tensor shaped `S`.
    type Result<S: Dims>;
    #[doc(hidden)]
    fn combined(&self) -> &Self::Value;
    #[doc(hidden)]
    fn wrap_result<S: Dims>(tensor: Tensor<S>) -> Self::Result<S>;
}

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

            fn wrap_result<S: Dims>(tensor: Tensor<S>) -> Tensor<S> {
                tensor
            }
        }
    )*};
}

right! {
    <T: Dims> Tensor<T> => Tensor<T>, |tensor| tensor;
    <T: Dims> &Tensor<T> => Tensor<T>, |tensor| tensor;
    <P> &Param<P> => Param<P>, |param| param;
    <> f32 => f32, |number| number;
    <T> InFlight<T> => InFlight<T>, |in_flight| in_flight;
    <T> &InFlight<T> => InFlight<T>, |in_flight| in_flight;
    <P> Param<P> => Moved<P>, |_param| &Moved(PhantomData);
}

/// A tensor cannot be combined with them; the result type would be a partial sum.
macro_rules! right_partials {
    ($($right:ty),*) => {$(
        #[diagnostic::do_not_recommend]
        impl<T, A: AxisGroup> Right for $right {
            type Value = Partial<T, A>;
            type Result<S: Dims> = Partial<S, A>;

            fn combined(&self) -> &Partial<T, A> {
                self
            }

            fn wrap_result<S: Dims>(_: Tensor<S>) -> Partial<S, A> {
                unreachable!("no tensor is combined with a partial sum")
            }
        }
    )*};
}

right_partials! { Partial<T, A>, &Partial<T, A> }

/// Never implemented: a right operand after a parameter shaped `P`.
#[diagnostic::on_unimplemented(
    message = "a parameter, here one shaped `{P}`, cannot stand on the left of `+`, `-`, `*` or `/`",
    label = "the tensor stands on the left, the parameter on the right",
    note = "write `x + &self.bias` and `x * &self.gain`; `bias - x` is `-(x - &bias)`, and `gain / x` is `x.recip() * \
            &gain`",
    note = "as a tensor the parameter stands on either side: `self.gain.tensor() / x`, `self.gain.tensor() * \
            &self.scale`"
)]
pub trait AfterParam<P> {
    /// The result.
    type Out;
    #[doc(hidden)]
    fn never_implemented() -> Self::Out;
}

macro_rules! never_after_param {
    ($($operator:ident $method:ident;)*) => {$(
        /// Never applies; the message of its bound explains why.
        impl<P, R: AfterParam<P>> $operator<R> for Param<P> {
            type Output = R::Out;

            fn $method(self, _: R) -> R::Out {
                R::never_implemented()
            }
        }

        /// Never applies; the message of its bound explains why.
        impl<P, R: AfterParam<P>> $operator<R> for &Param<P> {
            type Output = R::Out;

            fn $method(self, _: R) -> R::Out {
                R::never_implemented()
            }
        }
    )*};
}

never_after_param! {
    Add add;
    Sub sub;
    Mul mul;
    Div div;
}

/// Never implemented: the shape of a parameter that could be combined with a number, or be an operand of a function.
#[diagnostic::on_unimplemented(
    message = "a parameter, here one shaped `{Self}`, is no operand of a number or an elementwise function",
    label = "only tensors have elementwise functions, and numbers on their left",
    note = "as a tensor the parameter has them: `self.gain.tensor().sqrt()`, `1.0 + self.gain.tensor()`",
    note = "beside a tensor the parameter is the right operand: `x / &self.gain`, `(x * &self.gain).sqrt()`"
)]
pub trait ParamAsTensor {
    /// The result.
    type Out;
    #[doc(hidden)]
    fn never_implemented() -> !;
}

macro_rules! never_before_param {
    ($($operator:ident $method:ident;)*) => {$(
        /// Never applies; the message of its bound explains the fix.
        impl<P: ParamAsTensor> $operator<&Param<P>> for f32 {
            type Output = P::Out;

            fn $method(self, _: &Param<P>) -> P::Out {
                P::never_implemented()
            }
        }
    )*};
}

never_before_param! {
    Add add;
    Sub sub;
    Mul mul;
    Div div;
}

macro_rules! never_of_param {
    ($($name:ident($($argument:ty),*);)*) => {
        /// Functions of tensors, which never compile for a parameter; their messages explain why.
        impl<P: Dims> Param<P> {$(
            #[doc(hidden)]
            pub fn $name(&self $(, _: $argument)*) -> &Param<P>
            where
                P: ParamAsTensor,
            {
                P::never_implemented()
            }
        )*}
    };
}

never_of_param! {
    silu();
    gelu();
    gelu_tanh();
    relu();
    sigmoid();
    softplus();
    tanh();
    exp();
    log();
    sqrt();
    rsqrt();
    recip();
    square();
    abs();
    softmax();
    sin();
    cos();
    pow(f32);
    clamp(f32, f32);
}

macro_rules! tensor_operators {
    ($(
        $operator:ident $method:ident $assign:ident $assign_method:ident $rule:ident
        ($apply:ident $(, $op:expr)?);
    )*) => {$(
        impl<S: Dims, R: Right> $operator<R> for Tensor<S>
        where
            Tensor<S>: $rule<R::Value>,
        {
            type Output = R::Result<<Tensor<S> as $rule<R::Value>>::Out>;

            #[track_caller]
            fn $method(self, right: R) -> Self::Output {
                R::wrap_result($rule::$apply(&self, right.combined() $(, $op)?))
            }
        }

        impl<S: Dims, R: Right> $operator<R> for &Tensor<S>
        where
            Tensor<S>: $rule<R::Value>,
        {
            type Output = R::Result<<Tensor<S> as $rule<R::Value>>::Out>;

            #[track_caller]
            fn $method(self, right: R) -> Self::Output {
                R::wrap_result($rule::$apply(self, right.combined() $(, $op)?))
            }
        }

        impl<S: Dims, R: Right> $assign<R> for Tensor<S>
        where
            Tensor<S>: $rule<R::Value>,
            <Tensor<S> as $rule<R::Value>>::Out: Keeps<S>,
        {
            #[track_caller]
            fn $assign_method(&mut self, right: R) {
                let result = $rule::$apply(&*self, right.combined() $(, $op)?);
                *self = Tensor::from_untyped(result.value().clone());
            }
        }
    )*};
}

tensor_operators! {
    Add add AddAssign add_assign Combine (add_signed, Sign::Plus);
    Sub sub SubAssign sub_assign Combine (add_signed, Sign::Minus);
    Mul mul MulAssign mul_assign Product (multiply_by);
    Div div DivAssign div_assign Quotient (divide_by);
}

macro_rules! partial_operators {
    ($(
        $operator:ident $method:ident $assign:ident $assign_method:ident $rule:ident
        ($apply:ident $(, $op:expr)?);
    )*) => {$(
        impl<S: Dims, A: AxisGroup, R: $rule<Partial<S, A>>> $operator<R> for Partial<S, A> {
            type Output = Partial<S, A>;

            #[track_caller]
            fn $method(self, right: R) -> Partial<S, A> {
                right.$apply(&self $(, $op)?)
            }
        }

        impl<S: Dims, A: AxisGroup, R: $rule<Partial<S, A>>> $operator<R> for &Partial<S, A> {
            type Output = Partial<S, A>;

            #[track_caller]
            fn $method(self, right: R) -> Partial<S, A> {
                right.$apply(self $(, $op)?)
            }
        }

        impl<S: Dims, A: AxisGroup, R: $rule<Partial<S, A>>> $assign<R> for Partial<S, A> {
            #[track_caller]
            fn $assign_method(&mut self, right: R) {
                *self = right.$apply(self $(, $op)?);
            }
        }
    )*};
}

partial_operators! {
    Add add AddAssign add_assign Accumulate (accumulate, Sign::Plus);
    Sub sub SubAssign sub_assign Accumulate (accumulate, Sign::Minus);
    Mul mul MulAssign mul_assign Scale (multiply_by_scalar);
    Div div DivAssign div_assign Scale (divide_by_scalar);
}
