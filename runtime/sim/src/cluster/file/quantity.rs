//! Quantities of files: their units, and the values that are allowed.

/// A kind of number.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    /// Value of the file's unit in SI units.
    pub unit: f64,
    /// The allowed values, in words.
    pub allowed: &'static str,
    is_allowed: fn(f64) -> bool,
}

/// 10^9 bytes, or bytes per second.
pub const GIGA: Quantity = positive(1e9);
/// 10^12 operations per second.
pub const TERA: Quantity = positive(1e12);
/// Microseconds.
pub const MICRO: Quantity =
    Quantity { unit: 1e-6, allowed: "a number of 0 or more", is_allowed: |value| value >= 0.0 };
/// A number without a unit.
pub const PLAIN: Quantity = Quantity { unit: 1.0, ..MICRO };
/// A factor.
pub const FACTOR: Quantity = positive(1.0);
/// A fraction of a peak.
pub const FRACTION: Quantity = Quantity {
    unit: 1.0,
    allowed: "a fraction above 0 and at most 1",
    is_allowed: |value| value > 0.0 && value <= 1.0,
};
/// A number of things.
pub const COUNT: Quantity = Quantity {
    unit: 1.0,
    allowed: "a whole number from 1 to 10 million",
    is_allowed: |value| {
        (1.0..=super::super::MAX_GPUS as f64).contains(&value) && value.fract() == 0.0
    },
};

impl Quantity {
    /// Converts a number of a file; `None` if it is not allowed.
    pub fn parse(self, number: f64) -> Option<f64> {
        let value = number * self.unit;
        (value.is_finite() && (self.is_allowed)(number)).then_some(value)
    }

    /// Returns the shortest number that [`parse`](Self::parse) converts to `value`.
    pub fn in_file(self, value: f64) -> f64 {
        let number = value / self.unit;
        let rounded = (0..17).filter_map(|digits| format!("{number:.digits$e}").parse().ok());
        rounded.into_iter().find(|rounded| rounded * self.unit == value).unwrap_or(number)
    }
}

const fn positive(unit: f64) -> Quantity {
    Quantity { unit, allowed: "a number above 0", is_allowed: |number| number > 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_files_survive() {
        for (quantity, number) in
            [(TERA, 989.4), (GIGA, 3350.0), (MICRO, 13.7), (FRACTION, 0.745), (GIGA, 7.143)]
        {
            let value = quantity.parse(number).unwrap();
            assert_eq!(quantity.in_file(value), number);
        }
    }

    #[test]
    fn values_outside_are_refused() {
        for number in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e308] {
            assert_eq!(GIGA.parse(number), None, "{number}");
        }
        assert!(FRACTION.parse(1.0).is_some() && FRACTION.parse(1.01).is_none());
        assert!(COUNT.parse(1e7).is_some() && COUNT.parse(2.5).is_none());
        assert!(MICRO.parse(0.0).is_some() && MICRO.parse(-0.1).is_none());
    }
}
