//! Comparison of results.

use meshwright_backend::DType;

/// Checks that numbers are equal; NaN equals NaN, and both zeros are equal.
#[track_caller]
pub fn assert_same(what: &str, got: &[f32], expected: &[f32]) {
    assert_eq!(got.len(), expected.len(), "{what}: length");
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let same = got == expected || got.is_nan() && expected.is_nan();
        assert!(same, "{what}[{i}]: {got:?} instead of {expected:?}");
    }
}

/// Checks numbers within `tolerance` times the expected value and `floor`; NaN and infinities must match.
#[track_caller]
pub fn assert_close(what: &str, got: &[f32], expected: &[f32], tolerance: f32, floor: f32) {
    assert_eq!(got.len(), expected.len(), "{what}: length");
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let same = got == expected || got.is_nan() && expected.is_nan();
        // Written so that NaN fails.
        let close = (got - expected).abs() <= tolerance * expected.abs() + floor;
        assert!(same || close, "{what}[{i}]: {got:?} instead of {expected:?}");
    }
}

/// Checks numbers of a dtype that were rounded once, from a result within `tolerance` times the largest finite expected
/// number (or 0.1: operands are of order one). NaN and infinities must match.
#[track_caller]
pub(crate) fn assert_rounded(
    what: &str,
    dtype: DType,
    got: &[f32],
    expected: &[f64],
    tolerance: f64,
) {
    let unit = if dtype == DType::Bf16 { half_unit } else { |_| 0.0 };
    assert_within(what, got, expected, unit, tolerance * largest(expected, 0.1));
}

/// Checks numbers within `tolerance` times the largest finite expected number, or `order` if that is larger. NaN and
/// infinities must match.
#[track_caller]
pub fn assert_near(what: &str, got: &[f32], expected: &[f64], tolerance: f64, order: f64) {
    assert_within(what, got, expected, |_| 0.0, tolerance * largest(expected, order));
}

fn largest(expected: &[f64], order: f64) -> f64 {
    let finite = expected.iter().filter(|x| x.is_finite());
    finite.fold(order, |max: f64, x| max.max(x.abs()))
}

#[track_caller]
fn assert_within(what: &str, got: &[f32], expected: &[f64], unit: impl Fn(f64) -> f64, error: f64) {
    assert_eq!(got.len(), expected.len(), "{what}: length");
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let x = f64::from(*got);
        let same = x == *expected || x.is_nan() && expected.is_nan();
        let bound = error + unit(*expected);
        // Written so that NaN fails.
        let close = expected.is_finite() && (x - expected).abs() <= bound;
        assert!(same || close, "{what}[{i}]: {got:?} instead of {expected:?}, bound {bound:e}");
    }
}

/// Returns half of the distance between the bf16 numbers around `x`.
fn half_unit(x: f64) -> f64 {
    let power = f64::from_bits(x.to_bits() & 0x7ff0_0000_0000_0000);
    power.max(f64::from(f32::MIN_POSITIVE)) / 256.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    #[test]
    fn half_units_are_those_of_bf16() {
        for x in [1.0f32, 1.99, 0.3, 5e-39, 3e38] {
            let down = bf16::from_bits(bf16::from_f32(x).to_bits() & 0x7f80);
            let next = bf16::from_bits(down.to_bits() + 1);
            let unit = f64::from(next.to_f32()) - f64::from(down.to_f32());
            assert_eq!(half_unit(x.into()), unit / 2.0, "{x}");
        }
    }

    #[test]
    fn wrong_numbers_are_found() {
        let fails = |dtype, got: f32, expected: f64| {
            std::panic::catch_unwind(|| assert_rounded("x", dtype, &[got], &[expected], 1e-6))
                .is_err()
        };
        assert!(!fails(DType::F32, 1.000_000_8, 1.0) && fails(DType::F32, 1.000_002, 1.0));
        assert!(!fails(DType::Bf16, 1.0, 1.003_9) && fails(DType::Bf16, 1.0, 1.003_95));
        for (got, expected) in
            [(f32::NAN, 1.0), (1.0, f64::NAN), (f32::INFINITY, 1.0), (1.0, f64::INFINITY)]
        {
            assert!(fails(DType::F32, got, expected), "{got} for {expected}");
        }
        assert!(
            !fails(DType::F32, f32::NAN, f64::NAN)
                && !fails(DType::F32, f32::INFINITY, f64::INFINITY)
        );
    }
}
