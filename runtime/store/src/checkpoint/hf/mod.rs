//! Hugging Face folders: import and export of `config.json` and safetensors.

mod decoder;
mod derived;
mod export;
mod family;
mod format;
mod gpt2;
mod import;
mod llama;
mod mixtral;
mod rope;
mod settings;
mod side_files;
mod unread_keys;

pub use derived::DerivedTensor;
pub use export::{ExportLock, HfExport};
pub use family::{ConfigFile, HfConfig, TensorRole};
pub use format::HfFormat;
pub use gpt2::{Gpt2Config, Gpt2Dropout};
pub use import::HfFolder;
pub use llama::LlamaConfig;
pub use mixtral::MixtralConfig;
pub use settings::HfSettings;
pub use side_files::SideFiles;

#[cfg(test)]
mod rope_tests;
#[cfg(test)]
mod test_tensors;
#[cfg(test)]
mod tests;
