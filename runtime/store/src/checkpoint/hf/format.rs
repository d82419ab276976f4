//! The content of a folder that an export writes.

use serde_json::Value;

use super::{HfConfig, HfFolder, SideFiles};

/// The content of a folder to write: its `config.json`, and its tensors in the order in which they are written.
#[derive(Debug, Clone, PartialEq)]
pub struct HfFormat {
    pub(super) settings: Value,
    pub(super) tensors: Vec<(String, Vec<usize>)>,
    pub(super) side_files: SideFiles,
}

impl HfFormat {
    /// Describes the folder of a model with this configuration, and with tensors of these names and shapes.
    pub fn new<C: HfConfig>(config: &C, tensors: Vec<(String, Vec<usize>)>) -> HfFormat {
        HfFormat { settings: config.to_json(), tensors, side_files: SideFiles::default() }
    }

    /// Adds files to copy.
    #[must_use]
    pub fn with_side_files(self, side_files: SideFiles) -> HfFormat {
        HfFormat { side_files, ..self }
    }

    /// Adds the keys of the `config.json` that the model was read from, so that those without effect here are kept.
    #[must_use]
    pub fn with_keys_of(mut self, folder: &HfFolder) -> HfFormat {
        let mut keys = folder.keys().clone();
        // Another name of `torch_dtype`, which the export sets.
        keys.remove("dtype");
        let mut settings = Value::Object(keys);
        merge(&mut settings, std::mem::take(&mut self.settings));
        HfFormat { settings, ..self }
    }
}

/// Writes the keys of `own` over the same keys of `settings`, also within objects.
fn merge(settings: &mut Value, own: Value) {
    match (settings, own) {
        (Value::Object(settings), Value::Object(own)) => {
            for (key, value) in own {
                merge(settings.entry(key).or_insert(Value::Null), value);
            }
        }
        (settings, own) => *settings = own,
    }
}
