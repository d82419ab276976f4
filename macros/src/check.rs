//! The rules. One function for each, the rule stated above it.
//!
//! A rule looks at one item only. What depends on other items (whether a type is a layer, whether a
//! shape fits) is a trait bound in the expansion, judged by rustc.

pub mod forward;
pub mod model;
