//! Figures with their origin.

use std::fmt;
use std::sync::Arc;

/// A number of a description, in SI units, and its origin.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// The number: bytes, bytes per second, seconds, FLOP/s, or a fraction.
    pub value: f64,
    /// The document or measurement.
    pub origin: Origin,
}

/// The origin of a [`Figure`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The document or measurement.
    pub source: Arc<str>,
    /// Degree of trust.
    pub trust: Trust,
}

/// Degree of trust in a [`Figure`], the most trusted first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trust {
    /// Measured by this project, or by the user.
    Measured,
    /// Measured and published by others.
    Published,
    /// A data sheet of the vendor.
    DataSheet,
    /// An estimate.
    Guess,
}

impl Trust {
    /// All degrees, the most trusted first.
    pub const ALL: [Trust; 4] = [Trust::Measured, Trust::Published, Trust::DataSheet, Trust::Guess];

    /// Returns the name in files: `data sheet`.
    pub const fn name(self) -> &'static str {
        match self {
            Trust::Measured => "measured",
            Trust::Published => "published",
            Trust::DataSheet => "data sheet",
            Trust::Guess => "guess",
        }
    }

    /// Returns the relative uncertainty of a time that rests on rates of this trust.
    pub const fn uncertainty(self) -> f64 {
        match self {
            Trust::Measured => 0.08,
            Trust::Published => 0.15,
            Trust::DataSheet => 0.25,
            Trust::Guess => 0.35,
        }
    }
}

impl fmt::Display for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
