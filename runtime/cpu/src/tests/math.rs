//! Errors of the elementary functions over their whole range, in units in the last place of the exact result.

use crate::math;

fn ulps(got: f32, exact: f64) -> f64 {
    let nearest = exact as f32;
    let unit = f64::from(f32::from_bits(nearest.abs().to_bits() + 1)) - f64::from(nearest.abs());
    (f64::from(got) - exact).abs() / unit
}

/// Largest error over `count` evenly spaced points.
#[track_caller]
fn assert_ulps(
    range: std::ops::Range<f32>,
    limit: f64,
    f: impl Fn(f32) -> f32,
    exact: impl Fn(f64) -> f64,
) {
    const POINTS: u32 = 400_000;
    for i in 0..POINTS {
        let x = range.start + (range.end - range.start) * (i as f32 / POINTS as f32);
        let (got, exact) = (f(x), exact(f64::from(x)));
        assert!(
            ulps(got, exact) <= limit,
            "f({x:e}) = {got:e}, exact {exact:e}: {} ulp",
            ulps(got, exact)
        );
    }
}

#[test]
fn exponential() {
    assert_ulps(-87.0..88.7, 1.1, math::exp::<true>, f64::exp);
    assert_ulps(-87.0..88.7, 1.6, math::exp::<false>, f64::exp);
    // Subnormal results.
    assert_ulps(-103.9..-87.0, 1.1, math::exp::<true>, f64::exp);
    for exp in [math::exp::<true>, math::exp::<false>] {
        assert_eq!(
            [exp(0.0), exp(-0.0), exp(f32::NEG_INFINITY), exp(-200.0)],
            [1.0, 1.0, 0.0, 0.0]
        );
        assert_eq!([exp(f32::INFINITY), exp(89.0), exp(1e30)], [f32::INFINITY; 3]);
        assert!(exp(f32::NAN).is_nan());
    }
}

#[test]
fn hyperbolic_tangent() {
    for tanh in [math::tanh::<true>, math::tanh::<false>] {
        assert_ulps(-10.0..10.0, 2.0, tanh, f64::tanh);
        assert_ulps(-1e-3..1e-3, 2.0, tanh, f64::tanh);
        assert_eq!([tanh(0.0), tanh(f32::INFINITY), tanh(-f32::INFINITY)], [0.0, 1.0, -1.0]);
        assert!(tanh(f32::NAN).is_nan());
    }
}

#[test]
fn error_function() {
    for erf in [meshwright_backend::math::erf::<true>, meshwright_backend::math::erf::<false>] {
        assert_ulps(-6.0..6.0, 2.0, erf, meshwright_conformance::erf);
        assert_ulps(-1e-3..1e-3, 2.0, erf, meshwright_conformance::erf);
        assert_eq!([erf(0.0), erf(f32::INFINITY), erf(-f32::INFINITY)], [0.0, 1.0, -1.0]);
        assert!(erf(f32::NAN).is_nan());
    }
}

#[test]
fn logarithm_and_cosine() {
    assert_ulps(0.5..2.0, 3.0, math::log, f64::ln);
    assert_ulps(1e-10..1e-3, 2.0, math::log, f64::ln);
    assert_ulps(1e-44..1e-38, 2.0, math::natural_log, f64::ln);
    assert_ulps(1e-38..3e38, 2.0, math::natural_log, f64::ln);
    let natural_log = math::natural_log;
    assert_eq!([natural_log(0.0), natural_log(-0.0)], [f32::NEG_INFINITY; 2]);
    assert_eq!(natural_log(f32::INFINITY), f32::INFINITY);
    assert!([-1e-40, -1.0, f32::NEG_INFINITY, f32::NAN].iter().all(|x| natural_log(*x).is_nan()));
    assert_ulps(0.0..1.0, 3.0, meshwright_backend::math::log_1p, f64::ln_1p);
    assert_ulps(1e-30..1e-6, 2.0, meshwright_backend::math::log_1p, f64::ln_1p);
    assert!(meshwright_backend::math::log_1p(f32::NAN).is_nan());
    for i in -1000..=1000 {
        let u = i as f32 / 2000.0;
        let exact = (std::f64::consts::TAU * f64::from(u)).cos();
        assert!((f64::from(math::cos_turns(u)) - exact).abs() < 1e-6);
    }
}

#[test]
fn sums_and_maxima_of_any_length() {
    for len in [0, 1, 63, 64, 65, 200] {
        let x: Vec<f32> = (0..len).map(|i| (i * 7 % 64) as f32).collect();
        assert_eq!(math::lane_sum([&x], |[x]| 2.0 * x), 2.0 * x.iter().sum::<f32>());
        let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        assert_eq!(math::lane_max(&x, math::larger), max);
    }
}
