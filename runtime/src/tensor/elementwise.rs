//! Elementwise functions of tensors. They are not linear, so a partial sum has none.

use crate::autograd::Unary;
use crate::backend::UnaryFunction;
use crate::layout::{AxisGroup, Dims};

use super::in_flight::{InFlight, UsedBeforeWait};
use super::partial::{NotAValue, Partial};
use super::typed::Tensor;

/// Declares a method of tensors per elementwise function. The same method of partial sums, and of results in flight, never
/// compiles; the message of its bound explains why.
macro_rules! elementwise {
    ($($(#[$doc:meta])* $name:ident => $function:ident;)*) => {
        impl<S: Dims> Tensor<S> {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(&self) -> Tensor<S> {
                self.unary(Unary::Apply(UnaryFunction::$function))
            }
        )*}

        impl<S: Dims, A: AxisGroup> Partial<S, A> {$(
            #[doc(hidden)]
            pub fn $name(&self) -> Tensor<S>
            where
                Self: NotAValue,
            {
                Self::never()
            }
        )*}

        impl<S: Dims> InFlight<Tensor<S>> {$(
            #[doc(hidden)]
            pub fn $name(&self) -> Tensor<S>
            where
                Self: UsedBeforeWait,
            {
                Self::never()
            }
        )*}
    };
}

elementwise! {
    /// Applies `x * sigmoid(x)` elementwise.
    silu => Silu;
    /// Applies the Gaussian error linear unit with the exact error function.
    gelu => Gelu;
    /// Applies the Gaussian error linear unit in its `tanh` approximation (Hendrycks and Gimpel, 2016).
    gelu_tanh => GeluTanh;
    /// Applies `max(x, 0)` elementwise.
    relu => Relu;
    /// Applies the hyperbolic tangent elementwise.
    tanh => Tanh;
    /// Applies `e^x` elementwise.
    exp => Exp;
}
