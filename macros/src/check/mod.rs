//! Rules of attributes, one function each, with the rule stated above it.
//!
//! A rule checks one item only. Properties that depend on other items (that a type is a layer, that shapes match) are
//! trait bounds in the expansion, which rustc checks.

pub mod forward;
pub mod mesh_test;
pub mod model;
pub mod stages;
