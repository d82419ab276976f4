//! Code generation, which cannot fail: mistakes were reported before.

pub mod forward;
pub mod model;
pub mod stages;
