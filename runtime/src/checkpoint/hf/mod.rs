//! Hugging Face folders of Llama models: sizes from `config.json`, weights from safetensors, and the way back.

mod config;
mod export;
mod import;

pub use config::LlamaConfig;
pub use export::HfExport;
pub use import::HfFolder;

#[cfg(test)]
mod tests;
