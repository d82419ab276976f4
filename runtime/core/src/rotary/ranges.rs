//! Ranges of the numbers of rotary embeddings.

pub(super) fn check_factor(factor: f64) -> Result<(), String> {
    if (1.0..f64::INFINITY).contains(&factor) {
        return Ok(());
    }
    Err(format!("factor must be a number of at least 1, not {factor}"))
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
