//! Hugging Face folders: import and export of `config.json` and safetensors.

mod config_text;
mod derived;
mod earlier_model;
mod export;
mod family;
pub(crate) mod file_names;
mod format;
mod import;
mod keys;
mod model_sizes;
pub(crate) mod model_type;
mod other_content;
mod rope;
#[cfg(test)]
mod rope_tests;
mod settings;
mod side_files;
mod size_flag;
mod stacked;
mod stored_names;
mod unread_keys;
pub(crate) mod weight_files;

pub use derived::DerivedTensor;
pub use export::{ExportLock, HfExport};
pub use family::{ConfigFile, HfConfig, TensorRole};
pub use format::HfFormat;
pub use import::HfFolder;
pub use keys::{HfKeys, KeyResult};
pub use model_sizes::ModelSizes;
pub use model_type::read_model_type;
pub use rope::{read_rope, read_rope_object, read_rope_objects, require_same_number, write_rope};
pub use settings::HfSettings;
pub use side_files::SideFiles;
pub use size_flag::SizeFlag;
pub use stacked::StackedWeights;
