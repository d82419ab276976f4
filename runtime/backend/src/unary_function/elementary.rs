//! Elementary functions: exponentials, the logarithm, powers and the absolute value.

use super::{DerivativeOf, Elementwise};
use crate::math;

pub struct Tanh;

impl Elementwise for Tanh {
    const NAME: &'static str = "tanh";
    const DERIVATIVE_OF: DerivativeOf = DerivativeOf::Output;
    const CUDA: &'static str = "
__device__ inline float tanh_forward(float x) { return tanhf(x); }
__device__ inline float tanh_backward(float g, float y) { return g * (1.0f - y * y); }
";

    #[inline(always)]
    fn output<const FMA: bool>(x: f32) -> f32 {
        math::tanh::<FMA>(x)
    }

    #[inline(always)]
    fn input_gradient<const FMA: bool>(g: f32, y: f32) -> f32 {
        g * (1.0 - y * y)
    }
}

pub struct Exp;

impl Elementwise for Exp {
    const NAME: &'static str = "exp";
    const DERIVATIVE_OF: DerivativeOf = DerivativeOf::Output;
    const CUDA: &'static str = "
__device__ inline float exp_forward(float x) { return expf(x); }
__device__ inline float exp_backward(float g, float y) { return g * y; }
";

    #[inline(always)]
    fn output<const FMA: bool>(x: f32) -> f32 {
        math::exp::<FMA>(x)
    }

    #[inline(always)]
    fn input_gradient<const FMA: bool>(g: f32, y: f32) -> f32 {
        g * y
    }
}

pub struct Log;

impl Elementwise for Log {
    const NAME: &'static str = "log";
    const DERIVATIVE_OF: DerivativeOf = DerivativeOf::Input;
    const CUDA: &'static str = "
__device__ inline float log_forward(float x) { return logf(x); }
__device__ inline float log_backward(float g, float x) { return __fdiv_rn(g, x); }
";

    #[inline(always)]
    fn output<const FMA: bool>(x: f32) -> f32 {
        math::natural_log(x)
    }

    #[inline(always)]
    fn input_gradient<const FMA: bool>(g: f32, x: f32) -> f32 {
        g / x
    }
}

pub struct Sqrt;

impl Elementwise for Sqrt {
    const NAME: &'static str = "sqrt";
    const DERIVATIVE_OF: DerivativeOf = DerivativeOf::Output;
    const CUDA: &'static str = "
__device__ inline float sqrt_forward(float x) { return __fsqrt_rn(x); }
__device__ inline float sqrt_backward(float g, float y) { return __fdiv_rn(0.5f * g, y); }
";

    #[inline(always)]
    fn output<const FMA: bool>(x: f32) -> f32 {
        x.sqrt()
    }

    #[inline(always)]
    fn input_gradient<const FMA: bool>(g: f32, y: f32) -> f32 {
        0.5 * g / y
    }
}

pub struct Rsqrt;

impl Elementwise for Rsqrt {
    const NAME: &'static str = "rsqrt";
    const DERIVATIVE_OF: DerivativeOf = DerivativeOf::Output;
    // One factor at a time: the cube alone may overflow where the gradient does not.
    const CUDA: &'static str = "
__device__ inline float rsqrt_forward(float x) { return __fdiv_rn(1.0f, __fsqrt_rn(x)); }
__device__ inline float rsqrt_backward(float g, float y) { return -0.5f * g * y * y * y; }
";

    #[inline(always)]
    fn output<const FMA: bool>(x: f32) -> f32 {
        1.0 / x.sqrt()
    }

    #[inline(always)]
    fn input_gradient<const FMA: bool>(g: f32, y: f32) -> f32 {
        -0.5 * g * y * y * y
    }
}

pub struct Recip;

impl Elementwise for Recip {
    const NAME: &'static str = "recip";
    const DERIVATIVE_OF: DerivativeOf = DerivativeOf::Output;
    const CUDA: &'static str = "
__device__ inline float recip_forward(float x) { return __fdiv_rn(1.0f, x); }
__device__ inline float recip_backward(float g, float y) { return -g * y * y; }
";

    #[inline(always)]
    fn output<const FMA: bool>(x: f32) -> f32 {
        1.0 / x
    }

    #[inline(always)]
    fn input_gradient<const FMA: bool>(g: f32, y: f32) -> f32 {
        -g * y * y
    }
}

pub struct Square;

impl Elementwise for Square {
    const NAME: &'static str = "square";
    const DERIVATIVE_OF: DerivativeOf = DerivativeOf::Input;
    const CUDA: &'static str = "
__device__ inline float square_forward(float x) { return x * x; }
__device__ inline float square_backward(float g, float x) { return g * (x + x); }
";

    #[inline(always)]
    fn output<const FMA: bool>(x: f32) -> f32 {
        x * x
    }

    #[inline(always)]
    fn input_gradient<const FMA: bool>(g: f32, x: f32) -> f32 {
        g * (x + x)
    }
}

pub struct Abs;

impl Elementwise for Abs {
    const NAME: &'static str = "abs";
    const DERIVATIVE_OF: DerivativeOf = DerivativeOf::Input;
    // The derivative at 0 is 0.
    const CUDA: &'static str = "
__device__ inline float abs_forward(float x) { return fabsf(x); }
__device__ inline float abs_backward(float g, float x) { return x == 0.0f ? 0.0f : x < 0.0f ? -g : g; }
";

    #[inline(always)]
    fn output<const FMA: bool>(x: f32) -> f32 {
        x.abs()
    }

    #[inline(always)]
    fn input_gradient<const FMA: bool>(g: f32, x: f32) -> f32 {
        if x == 0.0 {
            0.0
        } else if x < 0.0 {
            -g
        } else {
            g
        }
    }
}
