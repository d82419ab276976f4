//! The Hugging Face format of a model family.

use std::borrow::Cow;
use std::path::Path;

use serde_json::{Map, Value};

use super::{DerivedTensor, HfSettings};
use crate::checkpoint::{CheckpointError, files};

/// The configuration of a model in the Hugging Face format, and the names of tensors in its folders.
///
/// One type per family, such as [`LlamaConfig`](super::LlamaConfig) and [`Gpt2Config`](super::Gpt2Config).
pub trait HfConfig: Sized {
    /// `model_type` of the family's folders.
    const MODEL_TYPE: &'static str;

    /// Reads the configuration from the keys of `config.json`. Absent keys have the defaults of the `transformers` library.
    ///
    /// # Errors
    /// A size that is missing or of the wrong type, and any setting that is not implemented here, by name: ignoring it would
    /// change the results.
    fn from_settings(settings: &HfSettings<'_>) -> Result<Self, String>;

    /// Returns the `config.json` that `transformers` loads as this model in f32, with its `model_type`.
    fn to_json(&self) -> Value;

    /// Returns the number of layers and its key in `config.json`.
    fn layers(&self) -> (&'static str, usize);

    /// Returns what a tensor that a folder stores as `stored` is to the model.
    fn tensor_role<'a>(&self, stored: &'a str) -> TensorRole<'a> {
        TensorRole::Model(Cow::Borrowed(stored))
    }

    /// Makes the head a weight of its own, since a folder stores one that differs from the tensor it is tied to, and returns
    /// true; false if the family has no such models.
    fn untie(&mut self) -> bool {
        false
    }

    /// Reads `config.json` of `folder`.
    ///
    /// # Errors
    /// A file that is missing or not JSON, another family's, or with settings that [`from_settings`](Self::from_settings)
    /// refuses.
    fn read(folder: &Path) -> Result<Self, CheckpointError> {
        let path = folder.join("config.json");
        let text = files::read_text(&path, files::MAX_JSON_BYTES)?;
        let settings = serde_json::from_slice(&text).map_err(|error| format!("not JSON: {error}"));
        let config = settings.and_then(|settings: Map<String, Value>| {
            let settings = HfSettings::new(&settings);
            check_family::<Self>(&settings)?;
            let config = Self::from_settings(&settings)?;
            check_architecture::<Self>(&settings)?;
            Ok(config)
        });
        config.map_err(|reason| CheckpointError::settings(&path, reason))
    }
}

/// What a tensor of a folder is to the model.
#[derive(Debug, Clone, PartialEq)]
pub enum TensorRole<'a> {
    /// A tensor of the model, by its usual name.
    Model(Cow<'a, str>),
    /// One that follows from others. It is compared with them.
    Derived(DerivedTensor),
}

/// Refuses the folder of another family before its settings are read, since their names differ.
fn check_family<C: HfConfig>(settings: &HfSettings<'_>) -> Result<(), String> {
    match settings.text("model_type")? {
        Some(found) if found != C::MODEL_TYPE => Err(format!(
            "model_type is \"{found}\"; only \"{}\" is supported by the model of this program",
            C::MODEL_TYPE
        )),
        _ => Ok(()),
    }
}

/// Refuses the folder of another family that has no `model_type`, by the names of its classes, which begin with that of the
/// family.
fn check_architecture<C: HfConfig>(settings: &HfSettings<'_>) -> Result<(), String> {
    let (None, Some(Value::Array(names))) =
        (settings.get("model_type"), settings.get("architectures"))
    else {
        return Ok(());
    };
    let family = C::MODEL_TYPE.replace(['_', '-'], "").to_lowercase();
    let is_of_family = |name: &&str| name.to_lowercase().starts_with(&family);
    match names.iter().filter_map(Value::as_str).find(|name| !is_of_family(name)) {
        Some(other) => Err(format!(
            "architectures has \"{other}\", and there is no model_type; only \"{}\" is supported by the model of this \
             program",
            C::MODEL_TYPE
        )),
        None => Ok(()),
    }
}

/// The content of a folder to write: its `config.json`, and its tensors in the order in which they are written.
#[derive(Debug, Clone, PartialEq)]
pub struct HfFormat {
    pub(super) settings: Value,
    pub(super) tensors: Vec<(String, Vec<usize>)>,
}

impl HfFormat {
    /// Describes the folder of a model with this configuration, and with tensors of these names and shapes.
    pub fn new<C: HfConfig>(config: &C, tensors: Vec<(String, Vec<usize>)>) -> HfFormat {
        HfFormat { settings: config.to_json(), tensors }
    }
}
