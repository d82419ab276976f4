//! Checks of the ranges of hyperparameters.

/// Checks that `value` is in `[0, 1)`, the range of decay rates, also after it is rounded to f32.
///
/// # Errors
/// A message for [`UpdateRule::check`](super::UpdateRule::check).
pub fn check_fraction(name: &str, value: f64) -> Result<(), String> {
    if (0.0..1.0).contains(&value) && (value as f32) < 1.0 {
        return Ok(());
    }
    let rounded = if value < 1.0 && value > 0.0 { ", which is 1 in f32" } else { "" };
    Err(format!("{name} must be at least 0 and below 1, not {value}{rounded}"))
}

/// Checks that `value` is finite and at least 0.
///
/// # Errors
/// A message for [`UpdateRule::check`](super::UpdateRule::check).
pub fn check_nonnegative(name: &str, value: f64) -> Result<(), String> {
    if value.is_finite() && value >= 0.0 {
        return Ok(());
    }
    Err(format!("{name} must be a finite number of at least 0, not {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_exclude_nan_and_infinity() {
        for value in [0.0, 0.5, 1.0 - 1e-7] {
            assert_eq!(check_fraction("beta", value), Ok(()));
        }
        for value in [-0.1, 1.0, f64::NAN] {
            let message = check_fraction("beta", value).unwrap_err();
            assert!(message.starts_with("beta must be at least 0 and below 1, not "), "{message}");
        }
        let rounded = check_fraction("beta", 1.0 - 1e-9).unwrap_err();
        assert!(rounded.ends_with("not 0.999999999, which is 1 in f32"), "{rounded}");
        assert_eq!(check_nonnegative("eps", 0.0), Ok(()));
        assert!(
            [-1.0, f64::NAN, f64::INFINITY].iter().all(|x| check_nonnegative("eps", *x).is_err())
        );
    }
}
