//! Meshwright bench.
