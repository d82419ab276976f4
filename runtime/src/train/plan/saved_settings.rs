//! Settings of a saved run, compared with the settings of the run that resumes it.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::checkpoint::Checkpoint;
use crate::checkpoint::hf::HfConfig;
use crate::data::{DataError, DataPosition};
use crate::layout::{AxisId, AxisSet};
use crate::mesh::MeshShape;
use crate::tensor::ZeroStage;
use crate::train::config::{Config, ModelSource, kept_flags};
use crate::train::{Decay, Error, Result};

/// Key of the architecture among the saved settings.
const ARCHITECTURE: &str = "architecture";

/// Key of the flags among the saved settings, with which a resumed run has the same settings.
const FLAGS: &str = "flags";

/// Treatment of a setting that differs.
#[derive(Clone, Copy, PartialEq)]
enum Treatment {
    /// The run would not continue.
    Refuse,
    /// The run may change it, but it is easily forgotten: a warning, with its consequence.
    Warn(&'static str),
    /// Without effect on training, or set by flags, which are compared.
    Ignore,
}

use Treatment::{Ignore, Refuse, Warn};

/// The settings that are compared: the path among the saved ones, the flag, and the treatment. All keys of the
/// architecture are compared, and others of the saved settings are not.
const SETTINGS: [(&str, &str, Treatment); 36] = [
    ("data.seq", "--seq", Refuse),
    ("data.batch", "--batch", Refuse),
    ("data.order", "--order", Refuse),
    ("data.seed", "--seed", Refuse),
    ("data.documents.end", "--documents", Refuse),
    ("data.documents.packs", "--pack", Refuse),
    ("data.documents.masks-borders", "--mask-borders", Refuse),
    ("architecture.bos_token_id", "", Ignore),
    ("architecture.eos_token_id", "", Ignore),
    ("architecture.router_aux_loss_coef", "", Ignore),
    ("architecture.router_z_loss_coef", "", Ignore),
    // Sizes that are not saved as flags where they follow from others.
    ("architecture.intermediate_size", "--ffn", Refuse),
    ("architecture.n_inner", "--ffn", Refuse),
    ("architecture.num_key_value_heads", "--kv-heads", Refuse),
    ("balance", "--balance", Warn("")),
    ("z-loss", "--z-loss", Warn("")),
    ("optimizer.lr.peak", "--lr", Warn("")),
    ("optimizer.lr.decay", "--lr-schedule", Warn("")),
    ("optimizer.lr.min", "--min-lr", Warn("")),
    ("optimizer.lr.warmup", "--warmup", Warn("")),
    ("optimizer.betas", "--betas", Warn("")),
    ("optimizer.eps", "--eps", Warn("")),
    ("optimizer.momentum", "--momentum", Warn("")),
    ("optimizer.weight-decay", "--weight-decay", Warn("")),
    ("optimizer.clip", "--clip", Warn("")),
    ("dtype", "--dtype", Warn("")),
    ("reduce-dtype", "--reduce-dtype", Warn("")),
    ("micro-batches", "--micro-batches", Warn(", which changes the load-balancing loss")),
    ("flags.schedule", "--schedule", Warn("")),
    ("flags.virtual-stages", "--virtual-stages", Warn("")),
    ("flags.stages", "--stages", Warn("")),
    ("flags.mesh-order", "--mesh-order", Warn("")),
    ("flags.zero", "--zero", Warn("")),
    ("flags.cp", "--cp", Warn("")),
    ("optimizer.ema", "--ema", Warn("")),
    ("optimizer.lr.steps", "--steps", Warn(", which moves the decay of the learning rate")),
];

/// A setting that differs from the saved one, `null` where it is missing.
struct Difference {
    path: String,
    saved: Value,
    now: Value,
}

/// The settings of a run that differ from the saved ones.
pub struct Differences {
    all: Vec<Difference>,
    saved_mesh: Option<MeshShape>,
}

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

impl Differences {
    /// Compares the settings of a checkpoint with those of a run that continues at the position `data`.
    pub fn new(
        checkpoint: &Checkpoint,
        config: &Config,
        architecture: &Value,
        data: &DataPosition,
    ) -> Differences {
        let state = &checkpoint.manifest().state;
        // Saved numbers were read from text.
        let now = settings_to_save(config, architecture).to_string();
        let now: Value = serde_json::from_str(&now).unwrap_or_default();
        let mut all = Vec::new();
        // Older checkpoints do not have all of them.
        for (key, saved) in state.config.as_object().into_iter().flatten() {
            list_differences(key, saved, &now[key], &mut all);
        }
        let position = |data: &DataPosition| serde_json::to_value(data).unwrap_or_default();
        list_differences("data", &position(&state.data), &position(data), &mut all);
        let saved_mesh = state.config[FLAGS]["mesh"].as_str().and_then(|mesh| mesh.parse().ok());
        Differences { all, saved_mesh }
    }

    fn find(&self, path: &str) -> Option<&Difference> {
        self.all.iter().find(|difference| difference.path == path)
    }

    /// Checks that the run continues with the same samples.
    ///
    /// # Errors
    /// [`DataError::OtherPosition`] lists every difference; `other_data` is one.
    pub fn check_data(&self, other_data: Option<String>) -> Result<()> {
        let of_data = SETTINGS.into_iter().filter(|(path, ..)| path.starts_with("data."));
        let settings = of_data.filter_map(|(path, flag, _)| {
            let Difference { saved, now, .. } = self.find(path)?;
            // Without documents there is nothing to pack or to mask.
            let is_moot = !path.ends_with(".end") && (saved.is_null() || now.is_null());
            (!is_moot).then(|| format!("{flag}: {}, but {} was saved", text(now), text(saved)))
        });
        let differences: Vec<String> = other_data.into_iter().chain(settings).collect();
        if differences.is_empty() {
            Ok(())
        } else {
            Err(DataError::OtherPosition { differences }.into())
        }
    }

    /// Checks that the model of the checkpoint has the same architecture. What shapes do not show, such as the base of
    /// rotary positions, would change the results.
    pub fn check_architecture(&self, checkpoint: &Checkpoint, config: &Config) -> Result<()> {
        let of_architecture = self.all.iter().filter_map(|difference| {
            let key = difference.path.strip_prefix(ARCHITECTURE)?.strip_prefix('.')?;
            match SETTINGS.into_iter().find(|(path, ..)| *path == difference.path) {
                Some((_, _, Ignore)) => None,
                Some((_, flag, _)) => Some(difference.describe(&format!("{flag} ({key})"))),
                None => Some(difference.describe(key)),
            }
        });
        let differences: Vec<String> = of_architecture.collect();
        if differences.is_empty() {
            return Ok(());
        }
        let settings = &checkpoint.manifest().state.config;
        let saved_source = settings.pointer("/model/init-from").and_then(Value::as_str);
        // The flag is kept as an absolute path.
        let is_saved_folder = |folder: &Path| {
            let kept = settings.pointer("/flags/init-from").and_then(Value::as_str);
            let is_same = |saved: &str| std::path::absolute(folder).is_ok_and(|now| now == *saved);
            kept.is_some_and(is_same)
                || saved_source.is_some_and(|saved| Path::new(saved) == folder)
        };
        let advice = match (saved_source, &config.model) {
            (Some(saved), ModelSource::InitFrom(folder)) if is_saved_folder(folder) => {
                format!("restore the config.json of {saved}, with which the run was saved")
            }
            (Some(saved), _) => format!("add --init-from {saved}, as in the saved run"),
            (None, ModelSource::InitFrom(_)) => {
                "leave --init-from out, as in the saved run".to_owned()
            }
            (None, ModelSource::New(_)) => {
                "leave out the flags that change it, or train another model without --resume"
                    .to_owned()
            }
        };
        Err(Error::Input(format!(
            "--resume: the model of {} differs from that of this run: {}; {advice}",
            checkpoint.folder().display(),
            differences.join(", ")
        )))
    }

    /// Describes the settings that the run may change, and has changed.
    pub fn changed_settings(&self, config: &Config, architecture: &Value) -> Vec<String> {
        let describe = |(path, flag, treatment): (&str, &str, Treatment)| {
            let (difference, Warn(consequence)) = (self.find(path)?, treatment) else {
                return None;
            };
            let matters = self.matters(difference, config, architecture);
            matters.then(|| difference.describe(flag) + consequence)
        };
        SETTINGS.into_iter().filter_map(describe).collect()
    }

    fn matters(&self, difference: &Difference, config: &Config, architecture: &Value) -> bool {
        let Difference { path, saved, now } = difference;
        let degree = |axes| config.mesh.degree_of(axes);
        let of_layout = ["flags.mesh", "flags.schedule", "flags.virtual-stages"];
        match (path.as_str(), &self.saved_mesh) {
            // A load-balancing loss follows from all rows of a micro-batch together.
            ("micro-batches", _) => {
                let of_model = || architecture["router_aux_loss_coef"].as_f64();
                config.balance.or_else(of_model).is_some_and(|weight| weight > 0.0)
            }
            // A run that begins or stops to keep an average has a warning of its own.
            ("optimizer.ema", _) => saved.is_number() && now.is_number(),
            // A constant rate does not depend on the number of steps.
            ("optimizer.lr.steps", _) => config.optimizer.lr.decay != Decay::Constant,
            (path, _) if !path.starts_with("flags.") => true,
            // How ranks share the work has no effect on results. Given settings of the same mesh are no surprise, nor
            // are those that follow from another one, on which they have their defaults.
            (_, None) => false,
            _ if of_layout.iter().all(|path| self.find(path).is_none()) => false,
            ("flags.mesh-order", _) => {
                let axes = AxisId::ALL.iter().filter(|axis| config.mesh.degree(**axis) > 1);
                !saved.is_null() && axes.count() > 1
            }
            ("flags.zero", Some(saved_mesh)) => {
                let suited = ZeroStage::suited_to(saved_mesh).number().to_string();
                degree(AxisSet::ZERO) > 1 && *saved != suited
            }
            ("flags.cp", _) => degree(AxisSet::of(AxisId::Cp)) > 1 && !saved.is_null(),
            (_, Some(saved_mesh)) => {
                degree(AxisSet::of(AxisId::Pp)) > 1 && saved_mesh.degree(AxisId::Pp) > 1
            }
        }
    }
}

impl Difference {
    fn describe(&self, name: &str) -> String {
        format!("{name} is {}, and {} was saved", text(&self.now), text(&self.saved))
    }
}

/// Lists the values that differ, by path.
fn list_differences(path: &str, saved: &Value, now: &Value, differences: &mut Vec<Difference>) {
    let objects = [saved, now].into_iter().filter_map(Value::as_object);
    let keys: BTreeSet<&String> = objects.flat_map(|object| object.keys()).collect();
    if keys.is_empty() && saved != now {
        let (saved, now) = (saved.clone(), now.clone());
        differences.push(Difference { path: path.to_owned(), saved, now });
    }
    for key in keys {
        let [saved, now] = [saved, now].map(|value| value.get(key).unwrap_or(&Value::Null));
        list_differences(&format!("{path}.{key}"), saved, now, differences);
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}
