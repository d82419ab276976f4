//! Settings of a saved run, compared with those of the run that resumes it.

use std::path::Path;

use serde_json::Value;

use crate::checkpoint::Checkpoint;
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
    let advice = match (saved_source, &config.model) {
        (Some(saved), ModelSource::InitFrom(folder)) if Path::new(saved) == folder => {
            format!("restore the config.json of {saved}, with which the run was saved")
        }
        (Some(saved), _) => format!("add --init-from {saved}, as in the saved run"),
        (None, _) => "use the settings of the saved run".to_owned(),
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
        differences.push(difference(path, saved, now));
        return;
    };
    let added = now.keys().filter(|key| !saved.contains_key(*key));
    for key in saved.keys().chain(added) {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let [saved, now] = [saved, now].map(|settings| settings.get(key).unwrap_or(&Value::Null));
        list_differences(&path, saved, now, differences);
    }
}

/// Describes the [changeable](CHANGEABLE) settings that differ from the saved ones.
pub fn changed_settings(checkpoint: &Checkpoint, config: &Config) -> Vec<String> {
    let saved = &checkpoint.manifest().state.config;
    let now = serde_json::to_string(config).and_then(|text| serde_json::from_str(&text));
    let now: Value = now.unwrap_or_default();
    let describe = |(path, flag): (&str, &str)| {
        let (saved, now) = (saved.pointer(path)?, now.pointer(path)?);
        (saved != now).then(|| difference(flag, saved, now))
    };
    let mut changed: Vec<String> = CHANGEABLE.into_iter().filter_map(describe).collect();
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

fn difference(name: &str, saved: &Value, now: &Value) -> String {
    let text = |value: &Value| match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    format!("{name} is {}, and {} was saved", text(now), text(saved))
}
