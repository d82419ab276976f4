//! Settings of a saved run, compared with the settings of the run that resumes it.

use serde_json::Value;

use crate::checkpoint::{Checkpoint, TrainState};
use crate::data::{DataError, DataPosition};
use crate::layout::{AxisId, AxisSet};
use crate::mesh::MeshShape;
use crate::tensor::ZeroStage;
use crate::train::config::{
    Change, Config, FLAGS, Flag, FlagKind, Kept, LoadBalancing, flags_of, is_same, kept_flags,
};
use crate::train::{Decay, Result};

use super::saved_architecture::ARCHITECTURE;

/// Key of the flags among the saved settings, with which a resumed run has the same settings.
const SAVED_FLAGS: &str = "flags";

/// Flags of the weights of auxiliary losses, and the keys of the model's architecture that hold the weights. Without a
/// flag they come from the folder of `--init-from`.
const AUXILIARY_WEIGHTS: [(&str, &str); 2] =
    [("balance", "router_aux_loss_coef"), ("z-loss", "router_z_loss_coef")];

/// The key of the rate of biases of the choice, which `transformers` does not have.
const BIAS_RATE: &str = "router_bias_rate";

/// A setting that differs, `None` where it is not given.
struct Difference {
    flag: &'static Flag,
    saved: Option<String>,
    now: Option<String>,
}

/// The settings that a checkpoint keeps and that differ in the run that continues it.
pub struct Differences<'a> {
    all: Vec<Difference>,
    saved_mesh: Option<MeshShape>,
    config: &'a Config,
    architecture: &'a Value,
}

/// Returns all settings of a run, also as flags, with the architecture of its model as `config.json` describes it.
pub fn settings_to_save(config: &Config, architecture: &Value) -> Value {
    let mut settings = serde_json::to_value(config).unwrap_or_default();
    if let Value::Object(settings) = &mut settings {
        settings.insert(ARCHITECTURE.to_owned(), architecture.clone());
        settings.insert(
            SAVED_FLAGS.to_owned(),
            serde_json::to_value(kept_flags(config)).unwrap_or_default(),
        );
    }
    settings
}

/// Returns the saved flags. Older checkpoints do not have them.
pub fn saved_flags(checkpoint: &Checkpoint) -> Option<&Value> {
    checkpoint.manifest().state.config.get(SAVED_FLAGS)
}

/// Returns the weight of an auxiliary loss of this architecture as a value of its flag; `None` for other flags, and
/// for models without experts.
fn auxiliary_weight(flag: &str, architecture: &Value) -> Option<String> {
    let (_, key) = AUXILIARY_WEIGHTS.iter().find(|(name, _)| *name == flag)?;
    architecture.get(AUXILIARY_WEIGHTS[0].1)?;
    // A weight of 0 may be left out.
    let number = |key: &str| architecture[key].as_f64().unwrap_or(0.0);
    Some(match flag {
        "balance" => LoadBalancing::of_weights(number(key), number(BIAS_RATE)).to_string(),
        _ => number(key).to_string(),
    })
}

/// Describes the data of `now` and each setting of its samples that differs from the saved ones, without the dashes of
/// flags. Empty if a loop continues with the same samples.
pub fn other_samples(saved: &DataPosition, now: &DataPosition) -> Vec<String> {
    let [of_saved, of_now] = [saved, now].map(|position| {
        let flags = flags_of(&serde_json::to_value(position).unwrap_or_default());
        move |name: &str| flags.get(name).cloned().unwrap_or("none".to_owned())
    });
    let follows_from_data =
        |flag: &&Flag| flag.kept.is_some_and(|kept| kept.change == Change::Refuse);
    let settings = FLAGS.iter().filter(follows_from_data).filter_map(|Flag { name, .. }| {
        let (saved, now) = (of_saved(name), of_now(name));
        (saved != now).then(|| format!("{name}: {now}, but {saved} was saved"))
    });
    let data = saved.other_data(now);
    data.iter().map(|data| data.trim_start_matches("--").to_owned()).chain(settings).collect()
}

impl<'a> Differences<'a> {
    /// Compares the settings of a saved run with those of this one, of a model of this `architecture`.
    pub fn new(saved: &TrainState, config: &'a Config, architecture: &'a Value) -> Differences<'a> {
        let now = kept_flags(config);
        let of_data = flags_of(&serde_json::to_value(&saved.data).unwrap_or_default());
        let of_config = flags_of(&saved.config);
        let saved_text = |flag: &Flag, change| match saved.config.get(SAVED_FLAGS) {
            _ if change == Change::Refuse => of_data.get(flag.name).cloned(),
            Some(flags) => flags[flag.name].as_str().map(str::to_owned),
            None => of_config.get(flag.name).cloned(),
        };
        // Older checkpoints do not have flags, and not all settings.
        let is_known = |kept: &Kept| {
            kept.change == Change::Refuse
                || saved.config.get(SAVED_FLAGS).is_some()
                || saved.config.pointer(kept.path).is_some()
        };
        let weights = |flag: &Flag| {
            let saved = auxiliary_weight(flag.name, saved.config.get(ARCHITECTURE)?)?;
            Some((saved, auxiliary_weight(flag.name, architecture)?))
        };
        let compare = |flag: &'static Flag| {
            let kept = flag.kept.filter(is_known)?;
            let (saved, now) = match weights(flag) {
                Some((saved, now)) => (Some(saved), Some(now)),
                None => (saved_text(flag, kept.change), now.get(flag.name).cloned()),
            };
            let is_same = match (&saved, &now) {
                (Some(saved), Some(now)) => is_same(flag.name, now, saved),
                (saved, now) => saved == now,
            };
            (!is_same).then_some(Difference { flag, saved, now })
        };
        let saved_mesh = Flag::find("mesh").and_then(|flag| saved_text(flag, Change::Free));
        Differences {
            all: FLAGS.iter().filter_map(compare).collect(),
            saved_mesh: saved_mesh.and_then(|mesh| mesh.parse().ok()),
            config,
            architecture,
        }
    }

    fn find(&self, flag: &str) -> Option<&Difference> {
        self.all.iter().find(|difference| difference.flag.name == flag)
    }

    fn treated(&self, change: Change) -> impl Iterator<Item = &Difference> {
        let is_treated = move |kept: Kept| kept.change == change;
        let treated = move |one: &&Difference| one.flag.kept.is_some_and(is_treated);
        self.all.iter().filter(treated).filter(|difference| self.matters(difference))
    }

    /// Checks that the run continues with the same samples; `other_data` describes other data.
    ///
    /// # Errors
    /// [`DataError::OtherPosition`] lists every difference.
    pub fn check_samples(&self, other_data: Option<String>) -> Result<()> {
        let differences: Vec<String> =
            other_data.into_iter().chain(self.changed_samples()).collect();
        if differences.is_empty() {
            return Ok(());
        }
        Err(DataError::OtherPosition { differences }.into())
    }

    /// Describes the settings of samples that differ.
    pub fn changed_samples(&self) -> Vec<String> {
        let describe = |difference: &Difference| {
            let [saved, now] = difference.texts();
            format!("--{}: {now}, but {saved} was saved", difference.flag.name)
        };
        self.treated(Change::Refuse).map(describe).collect()
    }

    /// Describes the settings that the run may change, and has changed.
    pub fn changed_settings(&self) -> Vec<String> {
        self.treated(Change::Warn).map(Difference::describe).collect()
    }

    fn matters(&self, difference: &Difference) -> bool {
        let Differences { config, architecture, .. } = self;
        let balance = || architecture[AUXILIARY_WEIGHTS[0].1].as_f64();
        let degree = |axis| config.mesh.degree(axis);
        let is_layout_changed =
            ["mesh", "schedule", "virtual-stages"].iter().any(|flag| self.find(flag).is_some());
        match (difference.flag.name, &self.saved_mesh) {
            // Without documents there is nothing to pack or to mask.
            ("pack" | "mask-borders", _) => {
                self.find("documents").is_none_or(|documents| !documents.is_given_once())
            }
            // A load-balancing loss follows from all rows of a micro-batch together.
            // With other micro-batches, replicas that train apart have other rows.
            ("micro-batches", _) => {
                config.local_sgd.is_some() || balance().is_some_and(|weight| weight > 0.0)
            }
            // A run that begins or stops to keep an average has a warning of its own, and other optimizers have other
            // flags.
            ("ema" | "betas" | "eps" | "momentum", _) => !difference.is_given_once(),
            // A constant rate does not depend on the number of steps.
            ("steps" | "min-lr", _) => config.optimizer.lr.decay != Decay::Constant,
            // How ranks share the work has no effect on results. Given settings of the same mesh are no surprise, nor
            // are those that follow from another one, on which they have their defaults.
            (
                "mesh-order" | "zero" | "cp" | "schedule" | "virtual-stages" | "stages",
                saved_mesh,
            ) if saved_mesh.is_none() || !is_layout_changed => false,
            ("mesh-order", _) => {
                let axes = AxisId::ALL.into_iter().filter(|axis| degree(*axis) > 1);
                difference.saved.is_some() && axes.count() > 1
            }
            ("zero", Some(saved_mesh)) => {
                let default = ZeroStage::suited_to(saved_mesh).number().to_string();
                config.mesh.degree_of(AxisSet::ZERO) > 1 && difference.saved != Some(default)
            }
            ("cp", _) => degree(AxisId::Cp) > 1 && difference.saved.is_some(),
            ("schedule" | "virtual-stages" | "stages", Some(saved_mesh)) => {
                degree(AxisId::Pp) > 1 && saved_mesh.degree(AxisId::Pp) > 1
            }
            _ => true,
        }
    }
}

impl Difference {
    fn is_given_once(&self) -> bool {
        self.saved.is_some() != self.now.is_some()
    }

    /// Returns the saved value and that of this run, as text.
    fn texts(&self) -> [&str; 2] {
        let absent = if self.flag.kind == FlagKind::Switch { "false" } else { "none" };
        [&self.saved, &self.now].map(|value| value.as_deref().unwrap_or(absent))
    }

    fn describe(&self) -> String {
        let [saved, now] = self.texts();
        let consequence = match self.flag.name {
            "micro-batches" => ", which changes the load-balancing loss",
            "steps" => ", which moves the decay of the learning rate",
            _ => "",
        };
        format!("--{} is {now}, and {saved} was saved{consequence}", self.flag.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::RunHistory;

    fn config(line: &str) -> Config {
        Config::parse(line.split(' ')).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// A checkpoint with these settings; one of an older version has fewer.
    fn saved(config: Value) -> TrainState {
        let (mesh, history) = ("1".to_owned(), RunHistory::begin(None));
        let data = Some(DataPosition::without_data(8, 0));
        TrainState {
            step: 2,
            seed: 0,
            mesh,
            mesh_order: None,
            data,
            history,
            evaluation: None,
            skipped: 0,
            config,
            own_loop: None,
        }
    }

    #[test]
    fn older_checkpoints_are_compared_by_what_they_have() {
        let line = "t --mesh fsdp=2 --seq 8 --batch 4 --order shuffled";
        let of_run = settings_to_save(&config(&format!("{line} --lr 1 --clip 0")), &Value::Null);
        let mut older = of_run.clone();
        older.as_object_mut().unwrap().remove(SAVED_FLAGS).unwrap();
        let oldest = serde_json::json!({ "optimizer": { "lr": { "peak": 1.0 }, "clip": null } });
        for of_checkpoint in [of_run, older, oldest] {
            let changed = |line: &str| {
                let (saved, now) = (saved(of_checkpoint.clone()), config(line));
                let differences = Differences::new(&saved, &now, &Value::Null);
                differences.check_samples(None).map_err(|error| error.to_string())?;
                Ok::<_, String>(differences.changed_settings())
            };
            let warnings = changed(&format!("{line} --lr 2 --clip 0")).unwrap();
            assert_eq!(warnings, ["--lr is 2, and 1 was saved"]);
            let text = changed(&line.replace("--batch 4", "--batch 8 --documents 7 --pack"));
            let text = text.unwrap_err();
            for part in ["--batch: 8, but 4 was saved", "--documents: 7, but none was saved"] {
                assert!(text.contains(part), "{text}");
            }
            assert!(!text.contains("--pack") && !text.contains("--order"), "{text}");
        }
    }

    #[test]
    fn weights_of_auxiliary_losses_are_compared_as_they_are() {
        let of_model = |balance: f64| serde_json::json!({ "router_aux_loss_coef": balance });
        let line = "t --mesh 1 --seq 8 --batch 4 --micro-batches";
        let changed = |now: &str, balance: f64| {
            let saved = saved(settings_to_save(&config(&format!("{line} 1")), &of_model(0.01)));
            let (now, architecture) = (config(&format!("{line} {now}")), of_model(balance));
            let differences = Differences::new(&saved, &now, &architecture);
            differences.changed_settings()
        };
        assert_eq!(
            changed("1 --balance none", 0.0),
            ["--balance is none, and batch=0.01 was saved"]
        );
        assert_eq!(changed("1 --balance batch=0.01 --z-loss 0", 0.01), [""; 0]);
        assert_eq!(changed("2 --balance none", 0.0).len(), 1);
        assert_eq!(changed("2", 0.01).len(), 1);
    }

    #[test]
    fn seeds_are_compared_in_all_digits() {
        let line = format!("t --mesh 1 --seq 8 --batch 4 --order shuffled --seed {}", u64::MAX);
        let mut saved = saved(settings_to_save(&config(&line), &Value::Null));
        saved.data.as_mut().unwrap().seed = u64::MAX;
        let check = |line: &str| {
            let (now, architecture) = (config(line), Value::Null);
            Differences::new(&saved, &now, &architecture).check_samples(None)
        };
        check(&line).unwrap();
        let text = check(&line.replace("1615", "1614")).unwrap_err().to_string();
        assert!(text.contains("--seed: 18446744073709551614, but 18446744073709551615"), "{text}");
    }
}
