//! Activation functions.

use std::f32::consts::FRAC_1_SQRT_2;

use super::{DerivativeOf, Elementwise};
use crate::math::{self, fma};

pub struct Silu;

impl Elementwise for Silu {
    const NAME: &'static str = "silu";
    const DERIVATIVE_OF: DerivativeOf = DerivativeOf::Input;
    const CUDA: &'static str = "
__device__ inline float silu_forward(float x) { return x * sigmoid(x); }
__device__ inline float silu_backward(float g, float x) {
    float s = sigmoid(x);
    return g * (s * (1.0f + x * (1.0f - s)));
}
";

    #[inline(always)]
    fn output<const FMA: bool>(x: f32) -> f32 {
        x * math::sigmoid::<FMA>(x)
    }

    #[inline(always)]
    fn input_gradient<const FMA: bool>(g: f32, x: f32) -> f32 {
        let s = math::sigmoid::<FMA>(x);
        g * s * fma::<FMA>(x, 1.0 - s, 1.0)
    }
}

pub struct Gelu;

impl Elementwise for Gelu {
    const NAME: &'static str = "gelu";
    const DERIVATIVE_OF: DerivativeOf = DerivativeOf::Input;
    const CUDA: &'static str = "
constexpr float SQRT_HALF = 0.70710678f, INV_SQRT_2_PI = 0.3989423f;
__device__ inline float gelu_forward(float x) { return 0.5f * x * (1.0f + erff(x * SQRT_HALF)); }
__device__ inline float gelu_backward(float g, float x) {
    return g * (0.5f * (1.0f + erff(x * SQRT_HALF)) + x * INV_SQRT_2_PI * expf(-0.5f * x * x));
}
";

    #[inline(always)]
    fn output<const FMA: bool>(x: f32) -> f32 {
        0.5 * x * (1.0 + math::erf::<FMA>(x * FRAC_1_SQRT_2))
    }

    #[inline(always)]
    fn input_gradient<const FMA: bool>(g: f32, x: f32) -> f32 {
        const FRAC_1_SQRT_2PI: f32 = 0.398_942_3;
        let cdf = 0.5 * (1.0 + math::erf::<FMA>(x * FRAC_1_SQRT_2));
        let pdf = FRAC_1_SQRT_2PI * math::exp::<FMA>(-0.5 * x * x);
        g * fma::<FMA>(x, pdf, cdf)
    }
}

pub struct GeluTanh;

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
    const CUDA: &'static str = "
constexpr float SQRT_2_OVER_PI = 0.7978846f;
// (1 + tanh(u)) / 2 is the sigmoid of 2 u, which is cheaper.
__device__ inline float gelu_tanh_gate(float x) { return sigmoid(2.0f * SQRT_2_OVER_PI * x * (1.0f + 0.044715f * x * \
x)); }
__device__ inline float gelu_tanh_forward(float x) { return x * gelu_tanh_gate(x); }
__device__ inline float gelu_tanh_backward(float g, float x) {
    // The square of a large x is infinite, so x is multiplied by the slope of the gate, which is 0 there, first.
    float s = gelu_tanh_gate(x), part = x * s * (1.0f - s);
    return g * (s + 2.0f * SQRT_2_OVER_PI * (part + 3.0f * 0.044715f * x * (x * part)));
}
";

    #[inline(always)]
    fn output<const FMA: bool>(x: f32) -> f32 {
        0.5 * x * (1.0 + Self::tanh::<FMA>(x))
    }

    #[inline(always)]
    fn input_gradient<const FMA: bool>(g: f32, x: f32) -> f32 {
        let t = Self::tanh::<FMA>(x);
        // The square of a large x is infinite, so x is multiplied by the slope of the tanh, which is 0 there, first.
        let part = x * (1.0 - t * t);
        let slope = Self::SQRT_2_OVER_PI * fma::<FMA>(3.0 * 0.044_715 * x, x * part, part);
        g * 0.5 * (1.0 + t + slope)
    }
}

pub struct Relu;

impl Elementwise for Relu {
    const NAME: &'static str = "relu";
    const DERIVATIVE_OF: DerivativeOf = DerivativeOf::Input;
    const CUDA: &'static str = "
// A comparison with NaN is false, so NaN passes through.
__device__ inline float relu_forward(float x) { return x < 0.0f ? 0.0f : x; }
__device__ inline float relu_backward(float g, float x) { return x <= 0.0f ? 0.0f : g; }
";

    // A NaN is not below zero, so it stays.
    #[inline(always)]
    fn output<const FMA: bool>(x: f32) -> f32 {
        if x < 0.0 { 0.0 } else { x }
    }

    #[inline(always)]
    fn input_gradient<const FMA: bool>(g: f32, x: f32) -> f32 {
        if x <= 0.0 { 0.0 } else { g }
    }
}

pub struct Sigmoid;

impl Elementwise for Sigmoid {
    const NAME: &'static str = "sigmoid";
    const DERIVATIVE_OF: DerivativeOf = DerivativeOf::Output;
    const CUDA: &'static str = "
__device__ inline float sigmoid_forward(float x) { return sigmoid(x); }
__device__ inline float sigmoid_backward(float g, float y) { return g * (y * (1.0f - y)); }
";

    #[inline(always)]
    fn output<const FMA: bool>(x: f32) -> f32 {
        math::sigmoid::<FMA>(x)
    }

    #[inline(always)]
    fn input_gradient<const FMA: bool>(g: f32, y: f32) -> f32 {
        g * (y * (1.0 - y))
    }
}

pub struct Softplus;

impl Elementwise for Softplus {
    const NAME: &'static str = "softplus";
    const DERIVATIVE_OF: DerivativeOf = DerivativeOf::Input;
    // With -|x| in the exponential, neither a large nor a small x overflows, and no digits cancel.
    const CUDA: &'static str = "
__device__ inline float softplus_forward(float x) { return (x > 0.0f ? x : 0.0f) + log1pf(expf(-fabsf(x))); }
__device__ inline float softplus_backward(float g, float x) { return g * sigmoid(x); }
";

    #[inline(always)]
    fn output<const FMA: bool>(x: f32) -> f32 {
        let positive = if x > 0.0 { x } else { 0.0 };
        positive + math::log_1p(math::exp::<FMA>(-x.abs()))
    }

    #[inline(always)]
    fn input_gradient<const FMA: bool>(g: f32, x: f32) -> f32 {
        g * math::sigmoid::<FMA>(x)
    }
}
