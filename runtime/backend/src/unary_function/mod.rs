//! Elementwise functions of one operand: name, forward, derivative and CUDA source of each.
//!
//! A new function is a variant of [`UnaryFunction`], a name in `by_function`, and a type that implements `Elementwise`.
//! The method of tensors is a line in `tensor/elementwise.rs`, with its name in the lists of `tensor/partial.rs` and
//! `tensor/in_flight.rs`.

mod activations;
mod elementary;
mod trigonometric;

pub use activations::{Gelu, GeluTanh, Relu, Sigmoid, Silu, Softplus};
pub use elementary::{Abs, Exp, Log, Recip, Rsqrt, Sqrt, Square, Tanh};
pub use trigonometric::{Cos, Sin};

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident)*) => {
        /// An elementwise function of one operand.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum UnaryFunction {$($(#[$doc])* $name),*}

        impl UnaryFunction {
            /// All functions.
            pub const ALL: &[UnaryFunction] = &[$(UnaryFunction::$name),*];
        }
    };
}

functions! {
    /// `x / (1 + exp(-x))`.
    Silu
    /// `x * (1 + erf(x / sqrt 2)) / 2`.
    Gelu
    /// `x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2`.
    GeluTanh
    /// `max(x, 0)`.
    Relu
    /// `1 / (1 + exp(-x))`.
    Sigmoid
    /// `log(1 + exp(x))`.
    Softplus
    /// Hyperbolic tangent.
    Tanh
    /// Exponential.
    Exp
    /// Natural logarithm.
    Log
    /// Square root.
    Sqrt
    /// `1 / sqrt(x)`.
    Rsqrt
    /// `1 / x`.
    Recip
    /// `x * x`.
    Square
    /// Absolute value.
    Abs
    /// Sine.
    Sin
    /// Cosine.
    Cos
}

/// Evaluates an expression with `F` as the type of a [`UnaryFunction`], so that loops over its elements are compiled
/// for each function.
#[macro_export]
#[doc(hidden)]
macro_rules! by_function {
    ($function:expr => $F:ident; $body:expr) => {
        by_function!(@ $function, $F, $body, UnaryFunction, Silu Gelu GeluTanh Relu Sigmoid Softplus Tanh Exp Log
            Sqrt Rsqrt Recip Square Abs Sin Cos)
    };
    (@ $function:expr, $F:ident, $body:expr, $enum:ident, $($name:ident)*) => {
        match $function {
            $($crate::$enum::$name => {
                type $F = $crate::unary_function::$name;
                $body
            })*
        }
    };
}

impl UnaryFunction {
    /// Returns the name in kernels: letters, digits and underscores.
    pub fn name(self) -> &'static str {
        by_function!(self => F; F::NAME)
    }

    /// Returns the operand of the derivative.
    pub fn derivative_of(self) -> DerivativeOf {
        by_function!(self => F; F::DERIVATIVE_OF)
    }

    /// Returns the CUDA C++ source of the function and its backward, see [`Elementwise::CUDA`].
    pub fn cuda(self) -> &'static str {
        by_function!(self => F; F::CUDA)
    }
}

/// The operand of a derivative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DerivativeOf {
    /// The input of the function.
    Input,
    /// The output of the function.
    Output,
}

/// Definition of a [`UnaryFunction`]. CPU functions have no branches, so that loops over them vectorize; `FMA` is true
/// if fused multiply-add is one instruction.
pub trait Elementwise {
    const NAME: &'static str;

    const DERIVATIVE_OF: DerivativeOf;

    /// CUDA C++ functions `float NAME_forward(float x)` and `float NAME_backward(float g, float v)`, which returns the
    /// gradient of the input; `v` is the operand of the derivative. They may use `map.cuh`.
    const CUDA: &'static str;

    /// Returns the output for the input `x`.
    fn output<const FMA: bool>(x: f32) -> f32;

    /// Returns the gradient of the input, from the gradient of the output and the operand of the derivative.
    fn input_gradient<const FMA: bool>(gradient: f32, operand: f32) -> f32;
}
