//! The Mixtral family.

mod config;
mod model;
mod names;

pub use config::MixtralConfig;
pub use model::*;
pub use names::HF_NAMES;
