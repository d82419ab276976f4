//! Models and optimizers of the examples, also used by tests and benchmarks.

pub mod gated_norm;
pub mod gpt2;
pub mod lion;
pub mod llama;
pub mod long_context;
pub mod mixtral;
