//! The conformance suite on this backend, and tests of what it has alone.

mod attention;
mod conformance;
mod math;
mod matrix;
mod rounding;
