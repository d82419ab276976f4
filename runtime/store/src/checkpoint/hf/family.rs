//! The Hugging Face format of a model family.

use std::borrow::Cow;
use std::path::Path;

use serde_json::{Map, Value};

use super::config_text::parse_keys;
use super::file_names::CONFIG;
use super::model_type::{architectures, class_of, model_type_of, quoted, with_article};
use super::unread_keys::check_unread;
use super::{DerivedTensor, HfSettings, StackedWeights, other_content};
use crate::checkpoint::{CheckpointError, files};

/// The configuration of a model in the Hugging Face format, and the names of tensors in its folders.
///
/// One type per struct of a model, such as `Gpt2Config`. It may serve several families, if they are one struct.
/// [`ConfigKeys`](crate::family::ConfigKeys) implements it by one function that names the keys.
pub trait HfConfig: Sized {
    /// `model_type` of the folders of the family, of the first one if there are several.
    const MODEL_TYPE: &'static str;

    /// `model_type` of the folders of each family.
    const MODEL_TYPES: &'static [&'static str] = &[Self::MODEL_TYPE];

    /// Objects of `config.json` that describe parts of the model which are not supported, such as `vision_config`. A
    /// folder with one of them has weights that would be lost, or is not complete, and is refused.
    const OTHER_PARTS: &'static [&'static str] = &[];

    /// Returns the `model_type` of this configuration.
    fn model_type(&self) -> &'static str {
        Self::MODEL_TYPE
    }

    /// Reads the configuration from the keys of `config.json`. Keys that it does not ask for are refused. Absent keys
    /// have the defaults of the `transformers` library.
    ///
    /// # Errors
    /// A size that is missing or of the wrong type, and any setting that is not implemented here, by name: ignoring it
    /// would change the results.
    fn from_settings(settings: &HfSettings<'_>) -> Result<Self, String>;

    /// Reads the configuration of one of [`MODEL_TYPES`](Self::MODEL_TYPES), with warnings about its keys.
    ///
    /// # Errors
    /// As [`from_settings`](Self::from_settings).
    fn of_type(
        model_type: &'static str,
        settings: &HfSettings<'_>,
    ) -> Result<(Self, Vec<String>), String> {
        let _ = model_type;
        Ok((Self::from_settings(settings)?, Vec::new()))
    }

    /// Returns the `config.json` that `transformers` loads as this model in f32, with its `model_type`.
    fn to_json(&self) -> Value;

    /// Returns the number of layers and its key in `config.json`.
    fn layers(&self) -> (&'static str, usize);

    /// Returns what a tensor that a folder stores as `stored` is to the model.
    fn tensor_role<'a>(&self, stored: &'a str) -> TensorRole<'a> {
        TensorRole::Model(Cow::Borrowed(stored))
    }

    /// Returns true if a tensor of a folder may have this name, without a prefix that another program has added. By
    /// default, no prefix is known to be one.
    fn is_tensor_name(&self, stored: &str) -> bool {
        let _ = stored;
        true
    }

    /// Returns the beginnings of names of tensors that a folder may lack, such as those of a head for another task:
    /// they begin with new values, and a warning names them.
    fn new_tensors(&self) -> &'static [&'static str] {
        &[]
    }

    /// Makes the head a weight of its own, since a folder stores one that differs from the tensor it is tied to, and
    /// returns true; false if the family has no such models.
    fn untie(&mut self) -> bool {
        false
    }

    /// Reads `config.json` of `folder`. Keys that nothing reads are left out if `accepted` has them.
    ///
    /// # Errors
    /// A file that is missing or not JSON, another family's, with a key twice, with settings that
    /// [`from_settings`](Self::from_settings) refuses, or with keys that it does not read.
    fn read(folder: &Path, accepted: &[String]) -> Result<ConfigFile<Self>, CheckpointError> {
        read_file(&folder.join(CONFIG), accepted, |settings| {
            refuse_quantized(settings)?;
            refuse_parts(settings, Self::OTHER_PARTS)
        })
    }

    /// Reads the architecture of a model without its weights: a `config.json`, or a folder with one. Keys that nothing
    /// reads are left out if `accepted` has them, and so is how the weights are quantized.
    ///
    /// # Errors
    /// As [`read`](Self::read), and a path that is neither.
    fn read_architecture(
        path: &Path,
        accepted: &[String],
    ) -> Result<ConfigFile<Self>, CheckpointError> {
        let file = other_content::find_config(path)?;
        read_file(&file, accepted, |settings| {
            settings.ignore(&["quantization_config"]);
            Ok(())
        })
    }
}

/// Reads a `config.json`; `check` is of its keys, once they are known to be of the family.
fn read_file<C: HfConfig>(
    path: &Path,
    accepted: &[String],
    check: impl FnOnce(&HfSettings<'_>) -> Result<(), String>,
) -> Result<ConfigFile<C>, CheckpointError> {
    let text = files::read_text(path, files::MAX_JSON_BYTES)?;
    let file = parse_keys(&text).and_then(|keys| {
        let settings = HfSettings::new(&keys);
        let model_type = model_type_of(&settings, C::MODEL_TYPES)?;
        check(&settings)?;
        let (config, warnings) = C::of_type(model_type, &settings)?;
        check_architecture(&settings, &config)?;
        let unread = check_unread(&settings, accepted)?;
        let warnings = unread.into_iter().chain(warnings).collect();
        Ok(ConfigFile { config, keys, warnings })
    });
    file.map_err(|reason| CheckpointError::settings(path, reason))
}

/// A `config.json`.
#[derive(Debug)]
pub struct ConfigFile<C> {
    /// The configuration of the model.
    pub config: C,
    /// All keys of the file.
    pub keys: Map<String, Value>,
    /// Warnings about its keys.
    pub warnings: Vec<String>,
}

/// The use of a tensor of a folder.
#[derive(Debug, Clone, PartialEq)]
pub enum TensorRole<'a> {
    /// A tensor of the model, by its usual name.
    Model(Cow<'a, str>),
    /// One that no model here computes with, such as a layer for another task. It is left out, with a warning.
    Unused,
    /// One whose model is not supported, for this reason: the end of a sentence about the tensor.
    Refused(&'static str),
    /// Several tensors of the model in one.
    StackOfWeights(StackedWeights),
    /// One that follows from others. It is compared with them.
    Derived(DerivedTensor),
}

/// Refuses weights that are not numbers of the model.
fn refuse_quantized(settings: &HfSettings<'_>) -> Result<(), String> {
    let Some(quantization) = settings.object("quantization_config")? else { return Ok(()) };
    let method = quantization.text("quant_method")?.unwrap_or("by a method that it does not name");
    Err(format!(
        "quantization_config: the weights are quantized ({method}), and quantized weights cannot be trained; use the \
         folder that they were made from, or save them in bf16 by dequantize() of transformers"
    ))
}

/// Refuses weights of a model that has parts which are not supported.
fn refuse_parts(settings: &HfSettings<'_>, parts: &[&str]) -> Result<(), String> {
    let found = parts
        .iter()
        .find(|part| settings.entries().any(|(key, value)| key == **part && !value.is_null()));
    found.map_or(Ok(()), |part| {
        Err(format!(
            "{part}: the folder is of a model with a part that is not supported; save the text model alone, by its \
             class `...ForCausalLM` of transformers"
        ))
    })
}

/// Refuses the folder of another family that has no `model_type`, by the names of its classes, which begin with that of
/// the family. With a `model_type`, a class of other computations or another task is an unknown key.
fn check_architecture<C: HfConfig>(settings: &HfSettings<'_>, config: &C) -> Result<(), String> {
    let is_key = |(key, _): &(&str, &Value)| *key == "architectures";
    let Some((_, found)) = settings.entries().find(is_key) else { return Ok(()) };
    if Some(found) == config.to_json().get("architectures") {
        settings.ignore(&["architectures"]);
        return Ok(());
    }
    let family = class_of(config.model_type());
    let names = architectures(settings);
    let other = names.iter().position(|name| !name.starts_with(&family));
    if let (None, Some(other)) = (settings.get("model_type"), other) {
        return Err(format!(
            "architectures has {}, and there is no model_type; this program trains {}",
            found[other],
            with_article(&quoted(C::MODEL_TYPES))
        ));
    }
    let is_known = |name: &String| {
        let class = name.strip_prefix(&family);
        class.is_some_and(|class| ["forcausallm", "lmheadmodel", "model"].contains(&class))
    };
    if names.iter().all(is_known) {
        settings.ignore(&["architectures"]);
    }
    Ok(())
}
