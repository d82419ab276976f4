//! Meshwright tests.
