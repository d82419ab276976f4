//! The settings of a run as flags, which its checkpoints keep and a resumed run takes.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::data::is_remote;
use crate::mesh::{AxisOrder, MeshShape};

use super::auto_sizes::AUTO_FLAGS;
use super::flags::{Flag, FlagKind};
use super::given_value::{GivenMap, GivenValue};
use super::setting_value::AUTO;
use super::settings::{FLAGS, SIZES};
use super::{Config, Problem, SettingSource};

/// Settings as text, by flag.
pub type KeptFlags = BTreeMap<&'static str, String>;

/// A flag, and those that are not taken from a checkpoint if the flag is given with another value than the saved one:
/// they may not fit it.
const DEPENDENT: [(&str, &[&str]); 9] = [
    ("mesh", &["mesh-order", "zero", "schedule", "virtual-stages", "stages", "cp"]),
    ("schedule", &["virtual-stages", "stages"]),
    ("virtual-stages", &["stages"]),
    ("optimizer", &["betas", "eps", "momentum"]),
    ("dtype", &["reduce-dtype"]),
    ("init-from", &SIZES),
    ("init-from", &["architecture", "family"]),
    ("architecture", &SIZES),
    ("architecture", &["init-from", "family"]),
];

/// Flags that name the file with the sizes of the model.
pub const MODEL_FILES: [&str; 2] = ["init-from", "architecture"];

/// Returns the settings that a checkpoint keeps, by flag. Paths are absolute.
pub fn kept_flags(config: &Config) -> KeptFlags {
    let mut settings = serde_json::to_value(config).unwrap_or_default();
    let order = config.mesh.order();
    if *order != AxisOrder::DEFAULT {
        settings["mesh-order"] = order.to_string().into();
    }
    flags_of(&settings)
}

/// Returns the flags of a serialized [`Config`].
pub fn flags_of(settings: &Value) -> KeptFlags {
    // A constant rate has no end.
    let has_end = settings["optimizer"]["lr"]["decay"] != "constant";
    let value_of = |flag: &Flag| flag_text(flag, settings.pointer(flag.kept?.path)?);
    let kept = FLAGS.iter().filter(|flag| has_end || flag.name != "min-lr");
    kept.filter_map(|flag| Some((flag.name, value_of(flag)?))).collect()
}

/// Returns a serialized value as that of a flag; `None` for one that is absent by default.
fn flag_text(flag: &Flag, value: &Value) -> Option<String> {
    let is_path = || match flag.name {
        // A word, and no path.
        "tokenizer" => *value != "bytes",
        "schedule" | "stages" => value.as_str().is_some_and(|text| text.contains('.')),
        _ => flag.kind == FlagKind::Path,
    };
    match value {
        Value::String(list) if matches!(flag.name, "data" | "eval-data") => absolute_list(list),
        Value::String(path) if is_path() => {
            hub_model(flag, Path::new(path)).or_else(|| absolute(Path::new(path)))
        }
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => match (flag.name, number.as_f64()?) {
            ("balance", 0.0) => Some("none".to_owned()),
            ("balance", weight) => Some(format!("batch={weight}")),
            (_, real) => Some(number.as_u64().map_or(real.to_string(), |count| count.to_string())),
        },
        Value::Array(items) if !items.is_empty() => {
            let items: Option<Vec<_>> = items.iter().map(|item| flag_text(flag, item)).collect();
            Some(items?.join(","))
        }
        Value::Bool(true) => Some("true".to_owned()),
        Value::Null if flag.name == "clip" => Some("0".to_owned()),
        _ => None,
    }
}

/// Adds the settings that the checkpoint in `folder` keeps, which are `saved`, to those that are given and override
/// them.
///
/// # Errors
/// Sizes that are given and differ from the saved ones, and settings that no run has saved.
pub fn add_kept_flags(
    given: &mut GivenMap,
    folder: &Path,
    saved: &Value,
) -> Result<(), Vec<Problem>> {
    let source = SettingSource::Checkpoint { folder: folder.to_owned() };
    let refuse = |message: String| Problem { source: Some(source.clone()), message };
    let Value::Object(saved) = saved else {
        return Err(vec![refuse("the saved settings are damaged".to_owned())]);
    };
    let mut flags: BTreeMap<&'static str, &str> = BTreeMap::new();
    for (name, value) in saved {
        match (Flag::find(name).filter(|flag| flag.kept.is_some()), value.as_str()) {
            (Some(flag), Some(value)) => flags.insert(flag.name, value),
            _ => {
                let message = format!(
                    "the saved setting `{name}` is none that checkpoints of this version keep; resume from another \
                     checkpoint"
                );
                return Err(vec![refuse(message)]);
            }
        };
    }
    let text = |name: &str| Some(given.get(name)?.text.to_string_lossy().into_owned());
    let mut problems = Vec::new();
    let has_file = MODEL_FILES.iter().any(|name| flags.contains_key(name));
    for name in SIZES.into_iter().filter(|_| !has_file) {
        // A size that follows from others is not saved; the family computes that of the feed-forward.
        let saved = match name {
            "ffn" | "experts" | "top-k" if !flags.contains_key(name) => continue,
            "kv-heads" => flags.get(name).or_else(|| flags.get("heads")),
            _ => flags.get(name),
        };
        let value = saved.copied().unwrap_or("false");
        if let Some(now) = text(name).filter(|now| !is_same(name, now, value)) {
            let message = format!(
                "--{name}: {now}, but {value} was saved in {}; leave it out, or train another model without --resume",
                folder.display()
            );
            problems.push(Problem { source: Some(given[name].source.clone()), message });
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let is_changed = |name: &str| {
        text(name)
            .is_some_and(|now| flags.get(name).is_none_or(|saved| !is_same(name, &now, saved)))
    };
    let left_out = DEPENDENT.into_iter().filter(|(name, _)| is_changed(name));
    let mut left_out: Vec<&str> = left_out.flat_map(|(_, names)| names.iter().copied()).collect();
    // The sizes of a file and of flags exclude each other.
    if SIZES.into_iter().any(|name| given.contains_key(name)) {
        left_out.extend(MODEL_FILES);
        left_out.push("accept-keys");
    }
    // They were chosen once, for the data of the run. On another mesh, other micro-batches fill the memory.
    let is_auto = |name: &&str| text(name).is_some_and(|now| now.trim() == AUTO);
    let is_kept = |name: &&str| *name != "micro-batches" || !is_changed("mesh");
    let chosen: Vec<&str> = AUTO_FLAGS.into_iter().filter(is_auto).filter(is_kept).collect();
    for name in chosen.into_iter().filter(|name| flags.contains_key(name)) {
        given.remove(name);
    }
    for (name, value) in flags {
        if !left_out.contains(&name) {
            let value = GivenValue { text: value.into(), source: source.clone() };
            given.entry(name).or_insert(value);
        }
    }
    Ok(())
}

/// Returns true if two texts are the same value of a flag.
pub fn is_same(name: &str, now: &str, saved: &str) -> bool {
    let [now, saved] = [now, saved].map(str::trim);
    if name == "mesh" {
        let [now, saved] = [now, saved].map(|text| text.parse::<MeshShape>());
        return matches!((now, saved), (Ok(now), Ok(saved)) if now == saved);
    }
    // Seeds have more digits than a real number.
    match (now.parse::<u64>(), saved.parse::<u64>(), now.parse::<f64>(), saved.parse::<f64>()) {
        (Ok(now), Ok(saved), ..) => now == saved,
        (.., Ok(now), Ok(saved)) => now == saved,
        _ => now == saved,
    }
}

/// Returns the name of a model of the Hugging Face hub, with its revision, whose files are at `path`.
#[cfg(feature = "hub")]
fn hub_model(flag: &Flag, path: &Path) -> Option<String> {
    let is_model =
        flag.name == "init-from" || flag.name == "tokenizer" && path.ends_with("tokenizer.json");
    let hub = meshwright_hub::Hub::from_env().ok().filter(|_| is_model)?;
    hub.model_at(path).map(|model| model.to_string())
}

#[cfg(not(feature = "hub"))]
fn hub_model(_: &Flag, _: &Path) -> Option<String> {
    None
}

/// Returns a path that leads to the same file from any folder; `None` if it is no text.
fn absolute(path: &Path) -> Option<String> {
    if is_remote(path) {
        return path.to_str().map(str::to_owned);
    }
    let absolute = std::path::absolute(path).ok()?;
    absolute.into_os_string().into_string().ok()
}

/// Returns a list of data that leads to the same files from any folder.
fn absolute_list(list: &str) -> Option<String> {
    if Path::new(list).exists() {
        return absolute(Path::new(list));
    }
    // A weight is the end of a path.
    let paths: Option<Vec<_>> = list.split(',').map(|path| absolute(Path::new(path))).collect();
    Some(paths?.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_data_lead_to_the_same_files() {
        let here = std::env::current_dir().unwrap();
        let expected = format!("{0}/web/*.bin:0.7,/x/code.bin:3", here.display());
        assert_eq!(absolute_list("web/*.bin:0.7,/x/code.bin:3"), Some(expected));
    }

    fn parse(line: &str) -> Config {
        Config::parse(line.split(' ')).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// A run with these flags has the same settings.
    #[test]
    fn kept_flags_make_the_same_settings() {
        for line in [
            "t --mesh 1",
            "t --data /a/b.bin --tied --vocab 300 --ffn 100 --kv-heads 2 --recompute sqrt --seed 18446744073709551615",
            "t --mesh pp=2,dp=2 --mesh-order dp,pp --schedule interleaved --virtual-stages 3 --stages 1,1,1,1,1,1 \
             --micro-batches 4 --layers 6 --batch 8 --dtype bf16 --reduce-dtype bf16 --state-dtype bf16 \
             --grad-dtype bf16",
            "t --mesh pp=2 --schedule /a/b.csv --stages /a/b.json",
            "t --mesh cp=2,fsdp=2 --cp ulysses --zero 1 --documents 7 --pack --mask-borders --order shuffled",
            "t --init-from /models/a --data /a/b.txt --tokenizer /a/t.json --recompute every=2 --accept-keys x,y.z",
            "t --architecture /models/a/config.json --seq 64 --accept-keys x",
            "t --balance batch=0.05 --z-loss 1e-3 --experts 4 --top-k 1",
            "t --balance none",
            "t --optimizer muon --momentum 0.8 --betas 0.8,0.99 --eps 1e-6 --lr 3e-4 --lr-schedule wsd --warmup 5 \
             --min-lr 1e-5 --weight-decay 0.25 --clip 0 --ema 0.999 --sample-tokens 0",
            "t --optimizer sgd --momentum 0.9 --lr-schedule cosine",
            "t --device cuda",
            "t --tokenizer bytes",
            "t --eval-data /a/v.txt --eval-every 7 --eval-steps 3 --early-stop 2",
            "t --eval-fraction 0.05",
            "t --mesh dp=4 --steps 4 --local-steps 2 --outer-lr 1 --outer-momentum 0",
            "t --mesh dp=4 --steps 8 --local-steps 8 --fragments 2 --fragment-delay 2 --fragment-alpha 0.25",
        ] {
            let config = parse(line);
            let words = kept_flags(&config).into_iter().flat_map(|(name, value)| {
                let is_switch = Flag::find(name).unwrap().kind == FlagKind::Switch;
                [Some(format!("--{name}")), (!is_switch).then_some(value)]
            });
            let words: Vec<String> = words.flatten().collect();
            assert_eq!(parse(&format!("t {}", words.join(" "))), config, "{line}");
        }
    }

    /// A place in a checkpoint is that of a setting.
    #[test]
    fn every_flag_that_is_kept_has_a_value() {
        let lines = [
            "t --mesh pp=2 --mesh-order pp --recompute sqrt --data a --tokenizer b --text-key c --token-dtype u16 \
             --documents 1 --pack --mask-borders --ema 0.5 --kv-heads 2 --ffn 2 --tied --experts 4 --top-k 1 \
             --optimizer muon",
            "t --architecture a",
            "t --family qwen3",
            "t --mesh cp=2 --cp ring --init-from a --accept-keys b --balance none --z-loss 0 --lr-schedule wsd",
            "t --eval-data v --eval-steps 1 --early-stop 1",
            "t --eval-fraction 0.5",
            "t --steps 4 --local-steps 2 --fragment-alpha 0.5",
        ];
        let kept: Vec<_> = lines.iter().flat_map(|line| kept_flags(&parse(line))).collect();
        for flag in FLAGS {
            let is_kept = kept.iter().any(|(name, _)| *name == flag.name);
            assert_eq!(is_kept, flag.kept.is_some(), "--{}", flag.name);
        }
    }
}
