//! Code generation, which cannot fail: mistakes were reported before.

mod describe;
pub mod forward;
pub mod mesh_test;
pub mod model;
pub mod stages;
pub mod variants;
