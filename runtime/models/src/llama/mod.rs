//! The Llama family.

mod config;
mod model;
mod names;

pub use config::LlamaConfig;
pub use model::*;
pub use names::HF_NAMES;
