//! Elementary functions without branches, so that loops over them vectorize.
//!
//! Polynomial coefficients are minimax fits made for this file; errors are measured in the tests against f64.

/// Returns `a * b + c`, fused if that is one instruction.
#[inline(always)]
pub fn fma<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

#[inline(always)]
fn polynomial<const FMA: bool, const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut sum = coefficients[N - 1];
    for i in (0..N - 1).rev() {
        sum = fma::<FMA>(sum, x, coefficients[i]);
    }
    sum
}

/// Constant of rounding: a small float plus this constant has its nearest integer in the low bits.
const ROUND: f32 = 12_582_912.0;

/// `e^x` within 1 ulp (1.5 without FMA); subnormal results, infinities and NaN follow IEEE 754.
#[inline(always)]
#[allow(clippy::excessive_precision)]
pub fn exp<const FMA: bool>(x: f32) -> f32 {
    // Beyond these bounds the result is infinite or rounds to zero; NaN passes both comparisons.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let shifted = fma::<FMA>(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    // ln 2 in two parts; the first has so few bits that its product with n is exact.
    let r = fma::<FMA>(n, -0.693_359_375, x);
    let r = fma::<FMA>(n, 2.121_944_4e-4, r);
    let tail = polynomial::<FMA, 5>(
        r,
        [0.499_999_934_1, 0.166_665_201_1, 0.041_668_394_27, 0.008_368_780_331, 0.001_381_446_298],
    );
    let p = fma::<FMA>(tail * r, r, r) + 1.0;
    // Two factors, since 2^n itself may overflow or be subnormal.
    let n = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let half = n >> 1;
    p * power_of_two(half) * power_of_two(n - half)
}

#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub fn sigmoid<const FMA: bool>(x: f32) -> f32 {
    1.0 / (1.0 + exp::<FMA>(-x))
}

/// Hyperbolic tangent within 2 ulp.
#[inline(always)]
#[allow(clippy::excessive_precision)]
pub fn tanh<const FMA: bool>(x: f32) -> f32 {
    let s = x * x;
    let tail = polynomial::<FMA, 5>(
        s,
        [
            -0.333_332_839_2,
            0.133_314_912_7,
            -0.053_743_497_29,
            0.020_650_585_33,
            -0.005_717_043_314,
        ],
    );
    let small = fma::<FMA>(tail * s, x, x);
    let large = 1.0 - 2.0 / (exp::<FMA>(2.0 * x.abs()) + 1.0);
    if x.abs() < 0.625 { small } else { large.copysign(x) }
}

/// Error function within 2 ulp.
#[inline(always)]
#[allow(clippy::excessive_precision)]
pub fn erf<const FMA: bool>(x: f32) -> f32 {
    let excess = polynomial::<FMA, 7>(
        x * x,
        [
            0.128_379_166,
            -0.376_126_271_4,
            0.112_836_001_8,
            -0.026_854_444_71,
            0.005_189_535_572,
            -8.020_843_364e-4,
            7.889_126_494e-5,
        ],
    );
    let small = fma::<FMA>(excess, x, x);
    // The logarithm of 1 - erf is smooth; from 4 on, erf rounds to 1.
    let a = x.abs();
    let a = if a > 4.0 { 4.0 } else { a };
    let log_rest = polynomial::<FMA, 7>(
        a,
        [
            -3.537_210_837e-4,
            -1.127_040_029,
            -0.638_225_689_6,
            -0.103_037_357_5,
            0.021_805_312_79,
            -0.002_939_605_896,
            1.855_738_665e-4,
        ],
    );
    let large = 1.0 - exp::<FMA>(log_rest);
    if x.abs() < 1.0 { small } else { large.copysign(x) }
}

/// Natural logarithm of a positive normal number, without fused multiply-add: the same bits on every CPU.
#[inline(always)]
#[allow(clippy::excessive_precision)]
pub fn log(x: f32) -> f32 {
    // Mantissa in [sqrt 1/2, sqrt 2).
    let bits = x.to_bits().wrapping_sub(0x3f35_04f3);
    let exponent = (bits as i32) >> 23;
    let f = f32::from_bits((bits & 0x007f_ffff).wrapping_add(0x3f35_04f3)) - 1.0;
    let tail = polynomial::<false, 8>(
        f,
        [
            0.333_333_167_3,
            -0.250_008_104,
            0.200_022_862,
            -0.166_245_540_6,
            0.141_811_932_9,
            -0.131_287_566_4,
            0.128_816_409_3,
            -0.078_595_989_1,
        ],
    );
    let n = exponent as f32;
    let s = f * f;
    (n * -2.121_944_4e-4 + (s * f * tail - 0.5 * s) + f) + n * 0.693_359_375
}

/// Natural logarithm, with the results of IEEE 754 for subnormal, infinite and negative numbers and NaN.
#[inline(always)]
pub fn natural_log(x: f32) -> f32 {
    const TWO_TO_23: f32 = 8_388_608.0;
    // Subnormal numbers become normal ones.
    let small = x < f32::MIN_POSITIVE;
    let (normal, offset) =
        if small { (x * TWO_TO_23, -23.0 * std::f32::consts::LN_2) } else { (x, 0.0) };
    let log = log(normal) + offset;
    // Infinity and NaN pass.
    let log = if x < f32::INFINITY { log } else { x };
    if x > 0.0 || x.is_nan() {
        log
    } else if x == 0.0 {
        f32::NEG_INFINITY
    } else {
        f32::NAN
    }
}

/// `log(1 + t)` for `t` in `[0, 1]`, or NaN.
#[inline(always)]
pub fn log_1p(t: f32) -> f32 {
    let sum = 1.0 + t;
    // The last term corrects for the rounding of the sum.
    log(sum) + (t - (sum - 1.0)) / sum
}

/// `cos(2 pi u)` for `|u| <= 1/2` within 2e-7, without fused multiply-add.
#[inline(always)]
#[allow(clippy::excessive_precision)]
pub fn cos_turns(u: f32) -> f32 {
    polynomial::<false, 8>(
        u * u,
        [
            0.999_999_999_9,
            -19.739_208_74,
            64.939_389_1,
            -85.456_658_87,
            60.242_137_75,
            -26.404_705_81,
            7.800_240_975,
            -1.453_237_582,
        ],
    )
}
