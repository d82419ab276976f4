//! Models and optimizers of the examples, also used by tests and benchmarks.

pub mod gated_norm;
pub mod lion;
pub mod long_context;
