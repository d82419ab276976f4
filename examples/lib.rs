//! Meshwright examples.
