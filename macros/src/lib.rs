//! The attribute macros of Meshwright.
