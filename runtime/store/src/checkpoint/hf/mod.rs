//! Hugging Face folders: import and export of `config.json` and safetensors.

mod derived;
mod export;
mod family;
mod format;
mod import;
mod settings;
mod side_files;
mod unread_keys;

pub use derived::DerivedTensor;
pub use export::{ExportLock, HfExport};
pub use family::{ConfigFile, HfConfig, TensorRole};
pub use format::HfFormat;
pub use import::HfFolder;
pub use settings::HfSettings;
pub use side_files::SideFiles;
