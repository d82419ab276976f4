//! Elementwise functions of tensors. The lists in `partial.rs` and `in_flight.rs` name them too: there they never compile, and
//! the message explains why.

use crate::autograd::Unary;
use crate::backend::UnaryFunction;
use crate::layout::Dims;

use super::typed::Tensor;

/// Declares a method of tensors per elementwise function.
macro_rules! elementwise {
    ($($(#[$doc:meta])* $name:ident => $function:ident;)*) => {
        impl<S: Dims> Tensor<S> {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(&self) -> Tensor<S> {
                self.apply_unary(Unary::Apply(UnaryFunction::$function))
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
