//! Settings of a saved run, compared with the settings of the run that resumes it.

use std::path::Path;

use serde_json::Value;

use crate::checkpoint::Checkpoint;
use crate::checkpoint::hf::HfConfig;
use crate::layout::{AxisId, AxisSet};
use crate::mesh::MeshShape;
use crate::tensor::ZeroStage;
use crate::train::config::{Config, ModelSource, kept_flags};
use crate::train::{Decay, Error, Result};

/// Key of the architecture among the saved settings.
const ARCHITECTURE: &str = "architecture";

/// Key of the flags among the saved settings, with which a resumed run has the same settings.
const FLAGS: &str = "flags";

/// Keys of `config.json` that a resumed run may change: without effect on training, or set by flags, which are
/// compared.
const NOT_COMPARED: [&str; 4] =
    ["bos_token_id", "eos_token_id", "router_aux_loss_coef", "router_z_loss_coef"];

/// Keys of `config.json` of the sizes that are not saved as flags where they follow from others, and their flags.
const DERIVED_SIZES: [(&str, &str); 3] =
    [("intermediate_size", "--ffn"), ("n_inner", "--ffn"), ("num_key_value_heads", "--kv-heads")];

/// Flags of how ranks share the work, without effect on results. Those that depend on the mesh are not taken from a
/// checkpoint with another one.
const LAYOUT: [&str; 7] =
    ["mesh", "schedule", "virtual-stages", "stages", "mesh-order", "zero", "cp"];

/// Settings that a resumed run may change, but that are easily forgotten: the path among the saved settings, and the
/// flag.
const CHANGEABLE: [(&str, &str); 13] = [
    ("/balance", "--balance"),
    ("/z-loss", "--z-loss"),
    ("/optimizer/lr/peak", "--lr"),
    ("/optimizer/lr/decay", "--lr-schedule"),
    ("/optimizer/lr/min", "--min-lr"),
    ("/optimizer/lr/warmup", "--warmup"),
    ("/optimizer/betas", "--betas"),
    ("/optimizer/eps", "--eps"),
    ("/optimizer/momentum", "--momentum"),
    ("/optimizer/weight-decay", "--weight-decay"),
    ("/optimizer/clip", "--clip"),
    ("/dtype", "--dtype"),
    ("/reduce-dtype", "--reduce-dtype"),
];

/// Returns all settings of a run, also as flags, with the architecture of its model as `config.json` describes it.
pub fn settings_to_save(config: &Config, architecture: &Value) -> Value {
    let mut settings = serde_json::to_value(config).unwrap_or_default();
    if let Value::Object(settings) = &mut settings {
        settings.insert(ARCHITECTURE.to_owned(), architecture.clone());
        settings
            .insert(FLAGS.to_owned(), serde_json::to_value(kept_flags(config)).unwrap_or_default());
    }
    settings
}

/// Returns the saved flags. Older checkpoints do not have them.
pub fn saved_flags(checkpoint: &Checkpoint) -> Option<&Value> {
    checkpoint.manifest().state.config.get(FLAGS)
}

/// Checks that a checkpoint is of a model of family `C`.
pub fn check_family<C: HfConfig>(checkpoint: &Checkpoint) -> Result<()> {
    let saved = &checkpoint.manifest().state.config[ARCHITECTURE]["model_type"];
    match saved.as_str() {
        Some(saved) if saved != C::MODEL_TYPE => Err(Error::Input(format!(
            "--resume: {} is of a {saved}, and this program trains a {}; use the program that has saved it",
            checkpoint.folder().display(),
            C::MODEL_TYPE
        ))),
        _ => Ok(()),
    }
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
    if differences.is_empty() {
        return Ok(());
    }
    let saved_source = settings.pointer("/model/init-from").and_then(Value::as_str);
    // The flag is kept as an absolute path.
    let is_saved_folder = |folder: &Path| {
        let kept = settings.pointer("/flags/init-from").and_then(Value::as_str);
        let is_same = |saved: &str| std::path::absolute(folder).is_ok_and(|now| now == *saved);
        kept.is_some_and(is_same) || saved_source.is_some_and(|saved| Path::new(saved) == folder)
    };
    let advice = match (saved_source, &config.model) {
        (Some(saved), ModelSource::InitFrom(folder)) if is_saved_folder(folder) => {
            format!("restore the config.json of {saved}, with which the run was saved")
        }
        (Some(saved), _) => format!("add --init-from {saved}, as in the saved run"),
        (None, ModelSource::InitFrom(_)) => "leave --init-from out, as in the saved run".to_owned(),
        (None, ModelSource::New(_)) => {
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

/// Describes the [changeable](CHANGEABLE) settings that differ from the saved ones, for a model of this `architecture`.
pub fn changed_settings(
    checkpoint: &Checkpoint,
    config: &Config,
    architecture: &Value,
) -> Vec<String> {
    let saved = &checkpoint.manifest().state.config;
    let now = serde_json::to_string(config).and_then(|text| serde_json::from_str(&text));
    let now: Value = now.unwrap_or_default();
    let describe = |(path, flag): (&str, &str)| {
        let (saved, now) = (saved.pointer(path)?, now.pointer(path)?);
        (saved != now).then(|| difference(flag, saved, now))
    };
    let mut changed: Vec<String> = CHANGEABLE.into_iter().filter_map(describe).collect();
    // A load-balancing loss follows from all rows of a micro-batch together.
    let balance = config.balance.or_else(|| architecture["router_aux_loss_coef"].as_f64());
    if balance.is_some_and(|weight| weight > 0.0)
        && let Some(difference) = describe(("/micro-batches", "--micro-batches"))
    {
        changed.push(format!("{difference}, which changes the load-balancing loss"));
    }
    changed.extend(changed_layout(saved, config));
    let ema = "/optimizer/ema";
    // A run that begins or stops to keep an average has a warning of its own.
    if config.optimizer.ema.is_some() && saved.pointer(ema).is_some_and(Value::is_number) {
        changed.extend(describe((ema, "--ema")));
    }
    let lr = &config.optimizer.lr;
    // A constant rate does not depend on the number of steps.
    if lr.decay != Decay::Constant
        && let Some(difference) = describe(("/optimizer/lr/steps", "--steps"))
    {
        changed.push(format!("{difference}, which moves the decay of the learning rate"));
    }
    changed
}

/// Describes the settings of the [layout](LAYOUT) that differ from the saved ones and do not follow from another mesh:
/// on it they have their defaults.
fn changed_layout(saved: &Value, config: &Config) -> Vec<String> {
    let (saved, now) = (&saved[FLAGS], kept_flags(config));
    let saved = |name: &str| saved[name].as_str();
    let Some(saved_mesh) = saved("mesh").and_then(|mesh| mesh.parse::<MeshShape>().ok()) else {
        return Vec::new();
    };
    let is_changed = |name: &&str| saved(name) != now.get(*name).map(String::as_str);
    // Given settings of the same mesh are no surprise.
    if !LAYOUT[..3].iter().any(is_changed) {
        return Vec::new();
    }
    let mesh = &config.mesh;
    let is_default = |zero: &str| zero == ZeroStage::suited_to(&saved_mesh).number().to_string();
    let matters = |name: &&str| match *name {
        "mesh" => false,
        "mesh-order" => {
            saved(name).is_some()
                && AxisId::ALL.iter().filter(|axis| mesh.degree(**axis) > 1).count() > 1
        }
        "zero" => mesh.degree_of(AxisSet::ZERO) > 1 && !saved("zero").is_some_and(is_default),
        "cp" => mesh.degree(AxisId::Cp) > 1 && saved("cp").is_some(),
        _ => mesh.degree(AxisId::Pp) > 1 && saved_mesh.degree(AxisId::Pp) > 1,
    };
    let value = |text: Option<&str>| text.map_or(Value::Null, Value::from);
    let describe = |name: &str| {
        let now = now.get(name).map(String::as_str);
        difference(&format!("--{name}"), &value(saved(name)), &value(now))
    };
    LAYOUT.into_iter().filter(is_changed).filter(matters).map(describe).collect()
}

fn difference(name: &str, saved: &Value, now: &Value) -> String {
    let text = |value: &Value| match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    format!("{name} is {}, and {} was saved", text(now), text(saved))
}
