//! Elementwise functions of tensors. The lists in `partial.rs` and `in_flight.rs` name them too: there they never
//! compile, and the message explains why.

use crate::autograd::Unary;
use crate::layout::Dims;
use meshwright_backend::UnaryFunction;

use super::typed::{Tensor, note_number};

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
    /// Applies `1 / (1 + e^-x)` elementwise.
    sigmoid => Sigmoid;
    /// Applies `log(1 + e^x)` elementwise. The logarithm of `sigmoid` is `-(-x).softplus()`.
    softplus => Softplus;
    /// Applies the hyperbolic tangent elementwise.
    tanh => Tanh;
    /// Applies `e^x` elementwise.
    exp => Exp;
    /// Applies the natural logarithm elementwise: minus infinity at 0, NaN below.
    #[doc(alias = "ln")]
    log => Log;
    /// Applies the square root elementwise: NaN below 0.
    sqrt => Sqrt;
    /// Applies `1 / sqrt(x)` elementwise.
    rsqrt => Rsqrt;
    /// Applies `1 / x` elementwise.
    #[doc(alias = "reciprocal")]
    recip => Recip;
    /// Applies `x * x` elementwise.
    square => Square;
    /// Applies the absolute value elementwise; its derivative at 0 is 0.
    abs => Abs;
    /// Applies the sine elementwise, of radians.
    sin => Sin;
    /// Applies the cosine elementwise, of radians.
    cos => Cos;
}

impl<S: Dims> Tensor<S> {
    /// Raises each element to a power: by IEEE 754, `pow` of a negative element is NaN unless the exponent is an
    /// integer, and that of 0 by a negative exponent is infinite. The power 0 is 1, without a gradient.
    #[doc(alias = "powf")]
    #[track_caller]
    pub fn pow(&self, exponent: f32) -> Tensor<S> {
        note_number::<S>(self.rank(), "raised to the power of", exponent);
        self.apply_unary(Unary::Pow(exponent))
    }

    /// Limits each element to the range from `min` to `max`. Elements beyond have no gradient; NaN stays.
    ///
    /// # Panics
    ///
    /// If `min` is greater than `max`, or one of them is NaN.
    #[track_caller]
    pub fn clamp(&self, min: f32, max: f32) -> Tensor<S> {
        assert!(
            min <= max,
            "`clamp({min}, {max})`: the lower limit must not exceed the upper one, and both be numbers"
        );
        note_number::<S>(self.rank(), "limited from below by", min);
        note_number::<S>(self.rank(), "limited from above by", max);
        self.apply_unary(Unary::Clamp(min, max))
    }
}
