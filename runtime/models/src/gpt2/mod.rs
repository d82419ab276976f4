//! The GPT-2 family.

mod config;
mod model;
mod names;

pub use config::{Gpt2Config, Gpt2Dropout};
pub use model::*;
pub use names::HF_NAMES;
