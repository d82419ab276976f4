//! Figures with their origin.

use std::sync::Arc;

/// A number of a description, in SI units, and where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// The number: bytes, bytes per second, seconds, FLOP/s, or a fraction.
    pub value: f64,
    /// The document or measurement.
    pub source: Arc<str>,
    /// How far it can be trusted.
    pub trust: Trust,
}

/// How far a [`Figure`] can be trusted, the most trusted first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trust {
    /// Measured by this project.
    Measured,
    /// Measured and published by others.
    Published,
    /// A data sheet of the vendor.
    DataSheet,
    /// An estimate.
    Guess,
}
