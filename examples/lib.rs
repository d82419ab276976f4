//! Models and optimizers that the examples train, and that the tests and benchmarks use.

pub mod gpt2;
pub mod lion;
pub mod llama;
