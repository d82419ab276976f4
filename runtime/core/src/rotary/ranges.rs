//! Ranges of the numbers of rotary embeddings.

/// Most times that a scaling extends sequences, far beyond the factor of any model: larger factors leave numbers of no
/// digits, or NaN.
const MOST_FACTOR: f64 = 1e6;

pub(super) fn check_factor(factor: f64) -> Result<(), String> {
    if !(1.0..f64::INFINITY).contains(&factor) {
        return Err(format!("factor must be a number of at least 1, not {factor}"));
    }
    if factor > MOST_FACTOR {
        return Err(format!("factor must be at most {MOST_FACTOR}, not {factor:?}"));
    }
    Ok(())
}

/// Checks the factor of cosines and sines, whose square scales attention scores.
pub(super) fn check_attention_factor(factor: f64) -> Result<(), String> {
    check_between("attention_factor", factor, (0.001, 1000.0))
}

/// Checks a divisor of the frequency of a pair.
pub(super) fn check_divisor(name: &str, divisor: f64) -> Result<(), String> {
    check_between(name, divisor, (0.001, MOST_FACTOR))
}

pub(super) fn check_between(
    name: &str,
    number: f64,
    (least, most): (f64, f64),
) -> Result<(), String> {
    if (least..=most).contains(&number) {
        return Ok(());
    }
    Err(format!("{name} must be a number from {least} to {most}, not {number:?}"))
}

pub(super) fn check_positions(name: &str, positions: usize) -> Result<(), String> {
    if positions > 0 { Ok(()) } else { Err(format!("{name} must be at least 1, not 0")) }
}

pub(super) fn check_above_zero(name: &str, number: f64) -> Result<(), String> {
    if number > 0.0 && number.is_finite() {
        return Ok(());
    }
    Err(format!("{name} must be a number above 0, not {number}"))
}
