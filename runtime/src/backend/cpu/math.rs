//! Elementary functions without branches, so that loops over them vectorize.
//!
//! Polynomial coefficients are minimax fits made for this file; errors are measured in the tests against f64.

use std::ops::Range;

use super::float::Float;

/// Lanes of the accumulators of sums: four 512-bit registers, enough to hide the latency of an addition.
pub(super) const LANES: usize = 64;

/// Returns `a * b + c`, fused if that is one instruction.
#[inline(always)]
pub(in crate::backend) fn fma<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
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
pub(in crate::backend) fn exp<const FMA: bool>(x: f32) -> f32 {
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
pub(in crate::backend) fn sigmoid<const FMA: bool>(x: f32) -> f32 {
    1.0 / (1.0 + exp::<FMA>(-x))
}

/// Hyperbolic tangent within 2 ulp.
#[inline(always)]
#[allow(clippy::excessive_precision)]
pub(in crate::backend) fn tanh<const FMA: bool>(x: f32) -> f32 {
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
pub(in crate::backend) fn erf<const FMA: bool>(x: f32) -> f32 {
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
pub(super) fn log(x: f32) -> f32 {
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
pub(in crate::backend) fn natural_log(x: f32) -> f32 {
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
pub(in crate::backend) fn log_1p(t: f32) -> f32 {
    let sum = 1.0 + t;
    // The last term corrects for the rounding of the sum.
    log(sum) + (t - (sum - 1.0)) / sum
}

/// `cos(2 pi u)` for `|u| <= 1/2` within 2e-7, without fused multiply-add.
#[inline(always)]
#[allow(clippy::excessive_precision)]
pub(super) fn cos_turns(u: f32) -> f32 {
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

/// Returns the sum of `f` over the elements of equally long slices, in lanes: the same order for every vector width.
#[inline(always)]
pub(super) fn lane_sum<T: Float, const N: usize>(x: [&[T]; N], f: impl Fn([f32; N]) -> f32) -> f32 {
    let len = x[0].len();
    let x = parts_of(x, 0..len);
    let mut lanes = [0f32; LANES];
    let mut start = 0;
    while start + LANES <= len {
        let x = parts_of(x, start..start + LANES);
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += f(elements_at(x, lane));
        }
        start += LANES;
    }
    let x = parts_of(x, start..len);
    for (lane, sum) in lanes[..len - start].iter_mut().enumerate() {
        *sum += f(elements_at(x, lane));
    }
    fold_lanes(lanes, |a, b| a + b)
}

/// The larger of two numbers; NaN if one is NaN.
#[inline(always)]
pub(super) fn larger(max: f32, x: f32) -> f32 {
    // Comparisons with NaN are false, so NaN needs its own test.
    if x > max || x.is_nan() { x } else { max }
}

/// The larger of two numbers; a NaN is lost if the other one is a number.
///
/// A choice by comparison would be compiled to masked stores, which are slow, where one of the numbers lies in memory.
#[inline(always)]
pub(super) fn larger_number(max: f32, x: f32) -> f32 {
    max.max(x)
}

/// Largest element by [`larger`] or [`larger_number`]; -infinity for none.
#[inline(always)]
pub(super) fn lane_max<T: Float>(x: &[T], larger: impl Fn(f32, f32) -> f32) -> f32 {
    let (chunks, rest) = x.as_chunks::<LANES>();
    // Lanes of their own: those of whole chunks stay in registers, as no part of them is written.
    let mut last = [f32::NEG_INFINITY; LANES];
    for (lane, x) in last.iter_mut().zip(rest) {
        *lane = x.widen_to_f32();
    }
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for chunk in chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, x.widen_to_f32());
        }
    }
    for (lane, last) in lanes.iter_mut().zip(last) {
        *lane = larger(*lane, last);
    }
    fold_lanes(lanes, larger)
}

/// Combines lanes pairwise.
#[inline(always)]
pub(super) fn fold_lanes(lanes: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> f32 {
    let lanes = fold_halves::<64, 32>(lanes, &f);
    let lanes = fold_halves::<32, 16>(lanes, &f);
    let lanes = fold_halves::<16, 8>(lanes, &f);
    let lanes = fold_halves::<8, 4>(lanes, &f);
    let [a, b, c, d] = lanes;
    f(f(a, c), f(b, d))
}

#[inline(always)]
fn fold_halves<const N: usize, const M: usize>(
    x: [f32; N],
    f: impl Fn(f32, f32) -> f32,
) -> [f32; M] {
    let mut y = [0.0; M];
    for i in 0..M {
        y[i] = f(x[i], x[i + M]);
    }
    y
}

/// Returns a range of each slice.
///
/// `x.map(...)` would be compiled once for each caller, and is large.
#[inline(always)]
fn parts_of<T, const N: usize>(mut x: [&[T]; N], range: Range<usize>) -> [&[T]; N] {
    for x in &mut x {
        *x = &x[range.clone()];
    }
    x
}

/// Returns the elements of slices at an index.
///
/// `x.map(...)` would be a function of its own in builds without link-time optimization, called for each index.
#[inline(always)]
fn elements_at<T: Float, const N: usize>(x: [&[T]; N], index: usize) -> [f32; N] {
    let mut elements = [0.0; N];
    for (element, x) in elements.iter_mut().zip(x) {
        *element = x[index].widen_to_f32();
    }
    elements
}

/// Writes `f` of the elements of slices that are at least as long as `out`.
#[inline(always)]
pub(super) fn zip_map<const N: usize>(
    x: [&[f32]; N],
    out: &mut [f32],
    f: impl Fn([f32; N]) -> f32,
) {
    let x = parts_of(x, 0..out.len());
    for (i, out) in out.iter_mut().enumerate() {
        *out = f(elements_at(x, i));
    }
}

/// Adds `f` of the elements of slices that are at least as long as `out`.
#[inline(always)]
pub(super) fn zip_add<const N: usize>(
    x: [&[f32]; N],
    out: &mut [f32],
    f: impl Fn([f32; N]) -> f32,
) {
    let x = parts_of(x, 0..out.len());
    for (i, out) in out.iter_mut().enumerate() {
        *out += f(elements_at(x, i));
    }
}
