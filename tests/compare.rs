//! Numerical comparison with tolerances, which fails on any NaN.

use std::collections::BTreeMap;
use std::fmt::Display;

/// Named tensors, row-major.
pub type Tensors = BTreeMap<String, Vec<f32>>;

/// Returns `‖got - expected‖ / ‖expected‖`; infinite for different lengths, for values that are not finite, and for
/// nonzero values if all expected ones are zero.
pub fn distance(got: &[f32], expected: &[f32]) -> f64 {
    let square = |x: f64| x * x;
    let (mut difference, mut norm) = (0.0, 0.0);
    for (got, expected) in got.iter().zip(expected) {
        difference += square(f64::from(*got) - f64::from(*expected));
        norm += square(f64::from(*expected));
    }
    match (difference / norm).sqrt() {
        _ if got.len() != expected.len() => f64::INFINITY,
        _ if difference == 0.0 && norm == 0.0 => 0.0,
        distance if distance.is_finite() => distance,
        _ => f64::INFINITY,
    }
}

/// Returns `|got - expected| / |expected|`; infinite for values that are not finite.
pub fn scalar_distance(got: f64, expected: f64) -> f64 {
    let distance = ((got - expected) / expected).abs();
    if got == expected {
        0.0
    } else if distance.is_finite() {
        distance
    } else {
        f64::INFINITY
    }
}

/// The largest distances by kind of comparison; fails immediately if a tolerance is exceeded.
#[derive(Debug, Default)]
pub struct Report {
    worst: BTreeMap<&'static str, (f64, String)>,
}

impl Report {
    /// Records a distance, which must be at most `tolerance`.
    #[track_caller]
    pub fn note(&mut self, kind: &'static str, label: impl Display, distance: f64, tolerance: f64) {
        assert!(
            distance <= tolerance,
            "{kind} of {label}: relative distance {distance:.2e}, more than {tolerance:.1e}"
        );
        let worst = self.worst.entry(kind).or_insert((0.0, String::new()));
        if distance > worst.0 {
            *worst = (distance, label.to_string());
        }
    }

    /// Compares sequences of numbers, element by element.
    #[track_caller]
    pub fn scalars(
        &mut self,
        kind: &'static str,
        label: &str,
        got: &[f64],
        expected: &[f64],
        tolerance: f64,
    ) {
        assert_eq!(got.len(), expected.len(), "{kind} of {label}: how many");
        for (index, (got, expected)) in got.iter().zip(expected).enumerate() {
            let distance = scalar_distance(*got, *expected);
            self.note(kind, format_args!("{label}, step {index}"), distance, tolerance);
        }
    }

    /// Compares tensors by name, each by its norm.
    #[track_caller]
    pub fn tensors(
        &mut self,
        kind: &'static str,
        label: &str,
        got: &Tensors,
        expected: &Tensors,
        tolerance: f64,
    ) {
        let names: Vec<&String> = got.keys().collect();
        assert_eq!(names, expected.keys().collect::<Vec<_>>(), "{kind} of {label}: names");
        for (name, expected) in expected {
            let distance = distance(&got[name], expected);
            self.note(kind, format_args!("{label}, `{name}`"), distance, tolerance);
        }
    }

    /// Prints the largest distances, which `cargo test -- --nocapture` shows.
    pub fn print(&self) {
        for (kind, (distance, label)) in &self.worst {
            println!("{kind}: at most {distance:.1e} ({label})");
        }
    }
}

/// Asserts that the tensors are bitwise equal.
#[track_caller]
pub fn assert_same_bits(what: &str, got: &Tensors, expected: &Tensors) {
    let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(got.len(), expected.len(), "{what}: how many tensors");
    for (name, expected) in expected {
        let Some(got) = got.get(name) else { panic!("{what}: no `{name}`") };
        assert!(bits(got) == bits(expected), "{what}: `{name}` differs");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_has_infinite_distance() {
        assert_eq!(distance(&[1.0, 2.0], &[1.0, 2.0]), 0.0);
        assert_eq!(distance(&[0.0], &[0.0]), 0.0);
        assert_eq!(distance(&[3.0, 4.0], &[3.0, 0.0]), 4.0 / 3.0);
        for (got, expected) in
            [([f32::NAN, 0.0], [1.0, 0.0]), ([1.0, 0.0], [f32::NAN, 0.0]), ([1.0, 0.0], [0.0, 0.0])]
        {
            assert_eq!(distance(&got, &expected), f64::INFINITY);
        }
        assert_eq!(distance(&[1.0], &[1.0, 1.0]), f64::INFINITY);
        assert_eq!(scalar_distance(f64::NAN, 1.0), f64::INFINITY);
        assert_eq!(scalar_distance(1.0, f64::NAN), f64::INFINITY);
        assert_eq!(scalar_distance(0.0, 0.0), 0.0);
    }
}
