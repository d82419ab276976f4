//! The architecture of a saved model, compared with that of the run that continues it.

use std::path::Path;

use serde_json::Value;

use crate::checkpoint::Checkpoint;
use crate::checkpoint::hf::HfConfig;
use crate::train::config::{Config, MODEL_FILES, ModelSource, RunSettings};
use crate::train::{Error, Result};
use meshwright_store::__internal::{quoted, stated_model_type, with_article};

/// Key of the architecture among the saved settings.
pub const ARCHITECTURE: &str = "architecture";

/// Keys of `config.json` that a resumed run may change: without effect on training, or set by flags, which are
/// compared.
const NOT_COMPARED: [&str; 6] = [
    "bos_token_id",
    "eos_token_id",
    "n_ctx",
    "router_aux_loss_coef",
    "router_bias_rate",
    "router_z_loss_coef",
];

/// The key of the longest sequence, of models whose parameters do not depend on it.
const LONGEST: &str = "max_position_embeddings";

/// Keys of `config.json` of the sizes that are not saved as flags where they follow from others, and their flags.
const DERIVED_SIZES: [(&str, &str); 5] = [
    ("intermediate_size", "--ffn"),
    ("n_inner", "--ffn"),
    ("num_key_value_heads", "--kv-heads"),
    ("num_local_experts", "--experts"),
    ("num_experts_per_tok", "--top-k"),
];

/// Returns the family of the model of a checkpoint, if it states it.
pub fn saved_family(checkpoint: &Checkpoint) -> Option<&str> {
    checkpoint.manifest().state.config.get(ARCHITECTURE)?.get("model_type")?.as_str()
}

/// Checks that a checkpoint is of a model of family `C`.
pub fn check_family<C: HfConfig>(checkpoint: &Checkpoint) -> Result<()> {
    match saved_family(checkpoint) {
        Some(saved) if !C::MODEL_TYPES.contains(&saved) => Err(Error::Input(format!(
            "--resume: {} is of {}, and this program trains {}; use the program that has saved it, or `train`, which \
             takes each family of this library",
            checkpoint.folder().display(),
            with_article(saved),
            with_article(&quoted(C::MODEL_TYPES))
        ))),
        _ => Ok(()),
    }
}

/// Checks that a flag which names a family, or a file of one, names that of the checkpoint.
pub fn check_given_family(checkpoint: &Checkpoint, settings: &RunSettings) -> Result<()> {
    let Some(saved) = saved_family(checkpoint) else { return Ok(()) };
    let refused = |flag: &str, given: &str, other: &str| {
        Err(Error::Input(format!(
            "--resume: {} is of {}, but {flag} {given} is {}; leave {flag} out, since a checkpoint states its family, \
             or train another model without --resume",
            checkpoint.folder().display(),
            with_article(saved),
            with_article(other)
        )))
    };
    if let Some(family) = settings.family.as_deref().filter(|family| *family != saved) {
        return refused("--family", family, family);
    }
    let files = [("--init-from", &settings.init_from), ("--architecture", &settings.architecture)];
    for (flag, path) in files {
        let Some(path) = path else { continue };
        if let Some(other) = stated_model_type(path).filter(|other| other != saved) {
            return refused(flag, &path.display().to_string(), &other);
        }
    }
    Ok(())
}

/// Returns the longest sequence of the saved model, if its `config.json` states it.
pub fn longest_sequence(checkpoint: &Checkpoint) -> Option<usize> {
    let architecture = checkpoint.manifest().state.config.get(ARCHITECTURE)?;
    Some(architecture.get(LONGEST)?.as_u64()? as usize)
}

/// Checks that the model of a checkpoint has the same architecture. What shapes do not show, such as the base of rotary
/// positions, would change the results.
pub fn check_architecture(
    checkpoint: &Checkpoint,
    config: &Config,
    architecture: &Value,
) -> Result<()> {
    let settings = &checkpoint.manifest().state.config;
    // Older checkpoints do not have it.
    let Some(saved) = settings.get(ARCHITECTURE) else { return Ok(()) };
    // Saved numbers were read from text.
    let now = serde_json::from_str(&architecture.to_string()).unwrap_or_default();
    let mut differences = Vec::new();
    list_differences("", saved, &now, &mut differences);
    if config.new_data {
        differences.retain(|difference: &String| !difference.starts_with(LONGEST));
    }
    if differences.is_empty() {
        return Ok(());
    }
    // The flag is kept as an absolute path, and the setting as it was given.
    let saved_in = |group: &str| {
        MODEL_FILES.iter().find_map(|name| {
            let path = settings.pointer(&format!("/{group}/{name}"))?.as_str()?;
            Some((*name, path))
        })
    };
    let is_saved_file = |path: &Path| {
        let is_same = |saved: &str| std::path::absolute(path).is_ok_and(|now| now == *saved);
        saved_in("flags").is_some_and(|(_, kept)| is_same(kept))
            || saved_in("model").is_some_and(|(_, saved)| Path::new(saved) == path)
    };
    let now = match &config.model {
        ModelSource::InitFrom(path) => Some(("init-from", path)),
        ModelSource::Architecture(path) => Some(("architecture", path)),
        ModelSource::New(_) => None,
    };
    let advice = match (saved_in("model"), now) {
        (Some((_, saved)), Some((_, path))) if is_saved_file(path) => {
            format!("restore the config.json of {saved}, with which the run was saved")
        }
        (Some((flag, saved)), _) => format!("add --{flag} {saved}, as in the saved run"),
        (None, Some((flag, _))) => format!("leave --{flag} out, as in the saved run"),
        (None, None) => {
            "leave out the flags that change it, or train another model without --resume".to_owned()
        }
    };
    Err(Error::Input(format!(
        "--resume: the model of {} differs from that of this run: {}; {advice}",
        checkpoint.folder().display(),
        differences.join(", ")
    )))
}

/// Adds each setting that differs, by its path.
fn list_differences(path: &str, saved: &Value, now: &Value, differences: &mut Vec<String>) {
    if NOT_COMPARED.contains(&path) || saved == now {
        return;
    }
    let (Value::Object(saved), Value::Object(now)) = (saved, now) else {
        let flag = DERIVED_SIZES.iter().find(|(key, _)| *key == path);
        let name = flag.map_or(path.to_owned(), |(key, flag)| format!("{flag} ({key})"));
        differences.push(difference(&name, saved, now));
        return;
    };
    let added = now.keys().filter(|key| !saved.contains_key(*key));
    for key in saved.keys().chain(added) {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let [saved, now] = [saved, now].map(|settings| settings.get(key).unwrap_or(&Value::Null));
        list_differences(&path, saved, now, differences);
    }
}

fn difference(name: &str, saved: &Value, now: &Value) -> String {
    let text = |value: &Value| match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    format!("{name} is {}, and {} was saved", text(now), text(saved))
}
