//! Hugging Face folders: sizes from `config.json`, weights from safetensors, and the way back.

mod export;
mod family;
mod gpt2;
mod import;
mod llama;
mod settings;

pub use export::HfExport;
pub use family::{HfConfig, HfFormat};
pub use gpt2::{Gpt2Config, Gpt2Dropout};
pub use import::HfFolder;
pub use llama::LlamaConfig;
pub use settings::Settings;

#[cfg(test)]
mod test_tensors;
#[cfg(test)]
mod tests;
