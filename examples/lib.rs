//! Models of the examples, also used by tests and benchmarks.

pub mod gpt2;
pub mod llama;
