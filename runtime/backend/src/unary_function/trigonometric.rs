//! Sine and cosine.

use super::{DerivativeOf, Elementwise};

pub struct Sin;

impl Elementwise for Sin {
    const NAME: &'static str = "sin";
    const DERIVATIVE_OF: DerivativeOf = DerivativeOf::Input;
    const CUDA: &'static str = "
__device__ inline float sin_forward(float x) { return sinf(x); }
__device__ inline float sin_backward(float g, float x) { return g * cosf(x); }
";

    #[inline(always)]
    fn output<const FMA: bool>(x: f32) -> f32 {
        x.sin()
    }

    #[inline(always)]
    fn input_gradient<const FMA: bool>(g: f32, x: f32) -> f32 {
        g * x.cos()
    }
}

pub struct Cos;

impl Elementwise for Cos {
    const NAME: &'static str = "cos";
    const DERIVATIVE_OF: DerivativeOf = DerivativeOf::Input;
    const CUDA: &'static str = "
__device__ inline float cos_forward(float x) { return cosf(x); }
__device__ inline float cos_backward(float g, float x) { return -g * sinf(x); }
";

    #[inline(always)]
    fn output<const FMA: bool>(x: f32) -> f32 {
        x.cos()
    }

    #[inline(always)]
    fn input_gradient<const FMA: bool>(g: f32, x: f32) -> f32 {
        -g * x.sin()
    }
}
