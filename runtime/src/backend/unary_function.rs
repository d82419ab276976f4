//! Elementwise functions of one operand: name, forward, derivative and CUDA source of each.
//!
//! A new function is a variant of [`UnaryFunction`], a name in `by_function`, and a type that implements `Elementwise`. The
//! method of tensors is a line in `tensor/elementwise.rs`, with its name in the lists of `tensor/partial.rs` and
//! `tensor/in_flight.rs`.

use std::f32::consts::FRAC_1_SQRT_2;

use super::cpu::math::{self, fma};

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
    /// Hyperbolic tangent.
    Tanh
    /// Exponential.
    Exp
}

/// Evaluates an expression with `F` as the type of a [`UnaryFunction`], so that loops over its elements are compiled for
/// each function.
macro_rules! by_function {
    ($function:expr => $F:ident; $body:expr) => {
        by_function!(@ $function, $F, $body, UnaryFunction, Silu Gelu GeluTanh Relu Tanh Exp)
    };
    (@ $function:expr, $F:ident, $body:expr, $enum:ident, $($name:ident)*) => {
        match $function {
            $($crate::backend::$enum::$name => {
                type $F = $crate::backend::unary_function::$name;
                $body
            })*
        }
    };
}
pub(super) use by_function;

impl UnaryFunction {
    /// Returns the name in kernels: letters, digits and underscores.
    pub fn name(self) -> &'static str {
        by_function!(self => F; F::NAME)
    }

    /// Returns the operand of the derivative.
    pub(super) fn derivative_of(self) -> DerivativeOf {
        by_function!(self => F; F::DERIVATIVE_OF)
    }

    /// Returns the CUDA C++ source of the function and its backward, see [`Elementwise::CUDA`].
    #[cfg(feature = "cuda")]
    pub(super) fn cuda(self) -> &'static str {
        by_function!(self => F; F::CUDA)
    }
}

/// The operand of a derivative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DerivativeOf {
    /// The input of the function.
    Input,
    /// The output of the function.
    Output,
}

/// Definition of a [`UnaryFunction`]. CPU functions have no branches, so that loops over them vectorize; `FMA` is true if
/// fused multiply-add is one instruction.
pub(super) trait Elementwise {
    const NAME: &'static str;

    const DERIVATIVE_OF: DerivativeOf;

    /// CUDA C++ functions `float NAME_forward(float x)` and `float NAME_backward(float g, float v)`, which returns the gradient
    /// of the input; `v` is the operand of the derivative. They may use `map.cuh`.
    #[cfg(feature = "cuda")]
    const CUDA: &'static str;

    /// Returns the output for the input `x`.
    fn forward<const FMA: bool>(x: f32) -> f32;

    /// Returns the gradient of the input, from the gradient of the output and the operand of the derivative.
    fn backward<const FMA: bool>(gradient: f32, operand: f32) -> f32;
}

pub(super) struct Silu;

impl Elementwise for Silu {
    const NAME: &'static str = "silu";
    const DERIVATIVE_OF: DerivativeOf = DerivativeOf::Input;
    #[cfg(feature = "cuda")]
    const CUDA: &'static str = "
__device__ inline float silu_forward(float x) { return x * sigmoid(x); }
__device__ inline float silu_backward(float g, float x) {
    float s = sigmoid(x);
    return g * (s * (1.0f + x * (1.0f - s)));
}
";

    #[inline(always)]
    fn forward<const FMA: bool>(x: f32) -> f32 {
        x * math::sigmoid::<FMA>(x)
    }

    #[inline(always)]
    fn backward<const FMA: bool>(g: f32, x: f32) -> f32 {
        let s = math::sigmoid::<FMA>(x);
        g * s * fma::<FMA>(x, 1.0 - s, 1.0)
    }
}

pub(super) struct Gelu;

impl Elementwise for Gelu {
    const NAME: &'static str = "gelu";
    const DERIVATIVE_OF: DerivativeOf = DerivativeOf::Input;
    #[cfg(feature = "cuda")]
    const CUDA: &'static str = "
constexpr float SQRT_HALF = 0.70710678f, INV_SQRT_2_PI = 0.3989423f;
__device__ inline float gelu_forward(float x) { return 0.5f * x * (1.0f + erff(x * SQRT_HALF)); }
__device__ inline float gelu_backward(float g, float x) {
    return g * (0.5f * (1.0f + erff(x * SQRT_HALF)) + x * INV_SQRT_2_PI * expf(-0.5f * x * x));
}
";

    #[inline(always)]
    fn forward<const FMA: bool>(x: f32) -> f32 {
        0.5 * x * (1.0 + math::erf::<FMA>(x * FRAC_1_SQRT_2))
    }

    #[inline(always)]
    fn backward<const FMA: bool>(g: f32, x: f32) -> f32 {
        const FRAC_1_SQRT_2PI: f32 = 0.398_942_3;
        let cdf = 0.5 * (1.0 + math::erf::<FMA>(x * FRAC_1_SQRT_2));
        let pdf = FRAC_1_SQRT_2PI * math::exp::<FMA>(-0.5 * x * x);
        g * fma::<FMA>(x, pdf, cdf)
    }
}

pub(super) struct GeluTanh;

impl GeluTanh {
    const SQRT_2_OVER_PI: f32 = 0.797_884_6;

    /// Returns the hyperbolic tangent in the formula.
    #[inline(always)]
    fn tanh<const FMA: bool>(x: f32) -> f32 {
        let cubic = Self::SQRT_2_OVER_PI * x * fma::<FMA>(0.044_715 * x, x, 1.0);
        math::tanh::<FMA>(cubic)
    }
}

impl Elementwise for GeluTanh {
    const NAME: &'static str = "gelu_tanh";
    const DERIVATIVE_OF: DerivativeOf = DerivativeOf::Input;
    #[cfg(feature = "cuda")]
    const CUDA: &'static str = "
constexpr float SQRT_2_OVER_PI = 0.7978846f;
// (1 + tanh(u)) / 2 is the sigmoid of 2 u, which is cheaper.
__device__ inline float gelu_tanh_gate(float x) { return sigmoid(2.0f * SQRT_2_OVER_PI * x * (1.0f + 0.044715f * x * x)); }
__device__ inline float gelu_tanh_forward(float x) { return x * gelu_tanh_gate(x); }
__device__ inline float gelu_tanh_backward(float g, float x) {
    // The square of a large x is infinite, so x is multiplied by the slope of the gate, which is 0 there, first.
    float s = gelu_tanh_gate(x), part = x * s * (1.0f - s);
    return g * (s + 2.0f * SQRT_2_OVER_PI * (part + 3.0f * 0.044715f * x * (x * part)));
}
";

    #[inline(always)]
    fn forward<const FMA: bool>(x: f32) -> f32 {
        0.5 * x * (1.0 + Self::tanh::<FMA>(x))
    }

    #[inline(always)]
    fn backward<const FMA: bool>(g: f32, x: f32) -> f32 {
        let t = Self::tanh::<FMA>(x);
        // The square of a large x is infinite, so x is multiplied by the slope of the tanh, which is 0 there, first.
        let part = x * (1.0 - t * t);
        let slope = Self::SQRT_2_OVER_PI * fma::<FMA>(3.0 * 0.044_715 * x, x * part, part);
        g * 0.5 * (1.0 + t + slope)
    }
}

pub(super) struct Relu;

impl Elementwise for Relu {
    const NAME: &'static str = "relu";
    const DERIVATIVE_OF: DerivativeOf = DerivativeOf::Input;
    #[cfg(feature = "cuda")]
    const CUDA: &'static str = "
// A comparison with NaN is false, so NaN passes through.
__device__ inline float relu_forward(float x) { return x < 0.0f ? 0.0f : x; }
__device__ inline float relu_backward(float g, float x) { return x <= 0.0f ? 0.0f : g; }
";

    // A NaN is not below zero, so it stays.
    #[inline(always)]
    fn forward<const FMA: bool>(x: f32) -> f32 {
        if x < 0.0 { 0.0 } else { x }
    }

    #[inline(always)]
    fn backward<const FMA: bool>(g: f32, x: f32) -> f32 {
        if x <= 0.0 { 0.0 } else { g }
    }
}

pub(super) struct Tanh;

impl Elementwise for Tanh {
    const NAME: &'static str = "tanh";
    const DERIVATIVE_OF: DerivativeOf = DerivativeOf::Output;
    #[cfg(feature = "cuda")]
    const CUDA: &'static str = "
__device__ inline float tanh_forward(float x) { return tanhf(x); }
__device__ inline float tanh_backward(float g, float y) { return g * (1.0f - y * y); }
";

    #[inline(always)]
    fn forward<const FMA: bool>(x: f32) -> f32 {
        math::tanh::<FMA>(x)
    }

    #[inline(always)]
    fn backward<const FMA: bool>(g: f32, y: f32) -> f32 {
        g * (1.0 - y * y)
    }
}

pub(super) struct Exp;

impl Elementwise for Exp {
    const NAME: &'static str = "exp";
    const DERIVATIVE_OF: DerivativeOf = DerivativeOf::Output;
    #[cfg(feature = "cuda")]
    const CUDA: &'static str = "
__device__ inline float exp_forward(float x) { return expf(x); }
__device__ inline float exp_backward(float g, float y) { return g * y; }
";

    #[inline(always)]
    fn forward<const FMA: bool>(x: f32) -> f32 {
        math::exp::<FMA>(x)
    }

    #[inline(always)]
    fn backward<const FMA: bool>(g: f32, y: f32) -> f32 {
        g * y
    }
}
