//! The content of a folder that an export writes.

use std::ops::Range;
use std::path::PathBuf;

use serde_json::Value;

use super::file_names::WEIGHTS;
use super::{HfConfig, HfFolder, SideFiles};
use crate::checkpoint::StoredDtype;

/// Most bytes of the tensors of a file, by default.
const PART_BYTES: usize = 5_000_000_000;

/// Keys of the family and its class. Folders may omit them, or name the class of a model without a head.
const IDENTITY: [&str; 2] = ["architectures", "model_type"];

/// Keys whose entries are replaced together.
const LABELS: [&str; 2] = ["id2label", "label2id"];

/// The content of a folder to write: its `config.json`, and its tensors in the order in which they are written.
#[derive(Debug, Clone, PartialEq)]
pub struct HfFormat {
    config: Value,
    pub(super) tensors: Vec<(String, Vec<usize>)>,
    pub(super) dtype: StoredDtype,
    /// Most bytes of the tensors of a file, unless it holds only one.
    part_bytes: usize,
    pub(super) side_files: SideFiles,
    /// The folder that the model was read from, which an export may replace.
    pub(super) source: Option<PathBuf>,
}

/// A file of weights.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WeightFile {
    pub name: String,
    /// Indices of its tensors in the format.
    pub tensors: Range<usize>,
}

impl HfFormat {
    /// Describes the folder of a model with this configuration, and with tensors of these names and shapes: in f32, in
    /// files of at most 5 GB.
    pub fn new<C: HfConfig>(config: &C, tensors: Vec<(String, Vec<usize>)>) -> HfFormat {
        HfFormat {
            config: config.to_json(),
            tensors,
            dtype: StoredDtype::F32,
            part_bytes: PART_BYTES,
            side_files: SideFiles::default(),
            source: None,
        }
    }

    /// Sets the token that ends texts, if it is known and the configuration has none. Called before
    /// [`with_side_files`](Self::with_side_files), whose files name it too.
    #[must_use]
    pub fn with_end_token(mut self, end: Option<u32>) -> HfFormat {
        if let (Some(end), Some(key @ Value::Null)) = (end, self.config.get_mut("eos_token_id")) {
            *key = Value::from(end);
        }
        self
    }

    /// Sets the dtype of the weights.
    #[must_use]
    pub fn with_dtype(self, dtype: StoredDtype) -> HfFormat {
        HfFormat { dtype, ..self }
    }

    /// Sets the most bytes of a file of weights: a larger model has several, with an index.
    #[must_use]
    pub fn with_part_bytes(self, bytes: usize) -> HfFormat {
        HfFormat { part_bytes: bytes, ..self }
    }

    /// Adds files to copy, and those that follow from the configuration where they are missing.
    #[must_use]
    pub fn with_side_files(self, side_files: SideFiles) -> HfFormat {
        HfFormat { side_files: side_files.completed(&self.config), ..self }
    }

    /// Adds the keys of the `config.json` that the model was read from, as they are there: those without effect here,
    /// and those that say the same as the configuration, perhaps in other words.
    #[must_use]
    pub fn with_keys_of(mut self, folder: &HfFolder) -> HfFormat {
        let mut config = folder.keys().clone();
        if let Value::Object(own) = std::mem::take(&mut self.config) {
            for (key, value) in own {
                let is_same = config.contains_key(&key) && folder.config()[&key] == value;
                if LABELS.contains(&key.as_str()) {
                    // Another head may have others, and fewer.
                    config.remove("num_labels");
                    config.insert(key, value);
                } else if !is_same || IDENTITY.contains(&key.as_str()) {
                    merge(config.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        let (config, source) = (Value::Object(config), Some(folder.folder().to_owned()));
        HfFormat { config, source, ..self }
    }

    /// Returns the content of `config.json`.
    pub(super) fn config(&self) -> Value {
        let mut config = self.config.clone();
        let dtype = Value::from(match self.dtype {
            StoredDtype::F32 => "float32",
            StoredDtype::F16 => "float16",
            StoredDtype::Bf16 => "bfloat16",
        });
        // The newer name is read by newer programs only.
        if config.get("dtype").is_some() {
            config["dtype"] = dtype.clone();
        }
        config["torch_dtype"] = dtype;
        config
    }

    /// Returns the files of weights. Each holds as many tensors as fit, and at least one.
    pub(super) fn weight_files(&self) -> Vec<WeightFile> {
        let (mut ends, mut bytes) = (Vec::new(), 0);
        for (index, (_, shape)) in self.tensors.iter().enumerate() {
            let own = shape.iter().product::<usize>() * self.dtype.bytes();
            if index > 0 && own > self.part_bytes.saturating_sub(bytes) {
                ends.push(index);
                bytes = 0;
            }
            bytes += own;
        }
        ends.push(self.tensors.len());
        let count = ends.len();
        let starts = std::iter::once(0).chain(ends.clone());
        let file = |(part, (start, end))| WeightFile {
            name: match count {
                1 => WEIGHTS.to_owned(),
                _ => format!("model-{:05}-of-{count:05}.safetensors", part + 1),
            },
            tensors: start..end,
        };
        starts.zip(ends).enumerate().map(file).collect()
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
