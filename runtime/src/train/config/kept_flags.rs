//! The settings of a run as flags, which its checkpoints keep and a resumed run takes.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use crate::mesh::{AxisOrder, MeshShape};
use crate::pipeline::StageCut;

use super::flags::Flag;
use super::given::GivenMap;
use super::given_value::GivenValue;
use super::resolve::SIZES;
use super::{Config, Decay, ModelSource, Problem, ScheduleSource, SettingSource};

/// Flags that a checkpoint does not keep, and a resumed run does not take from one: flags of one machine, and of what a
/// run reads and writes besides.
const NOT_KEPT: [&str; 18] = [
    "config",
    "threads",
    "nondeterministic",
    "no-graphs",
    "memory-limit",
    "save",
    "save-every",
    "save-async",
    "keep",
    "max-failed-saves",
    "resume",
    "stop-after",
    "export-hf",
    "metrics",
    "trace",
    "stage-times",
    "explain",
    "preflight",
];

/// A flag, and those that are not taken from a checkpoint if the flag is given with another value than the saved one:
/// they may not fit it.
const DEPENDENT: [(&str, &[&str]); 6] = [
    ("mesh", &["mesh-order", "zero", "schedule", "virtual-stages", "stages", "cp"]),
    ("schedule", &["virtual-stages", "stages"]),
    ("virtual-stages", &["stages"]),
    ("optimizer", &["betas", "eps", "momentum"]),
    ("dtype", &["reduce-dtype"]),
    ("init-from", &SIZES),
];

/// Returns the settings that a checkpoint keeps, by flag. Paths are absolute.
pub fn kept_flags(config: &Config) -> BTreeMap<&'static str, String> {
    let mut flags = BTreeMap::new();
    let mut keep = |name: &'static str, value: Option<String>| {
        flags.extend(value.map(|value| (name, value)));
    };
    let text = |value: &dyn ToString| Some(value.to_string());
    let switch = |is_on: bool| is_on.then(|| "true".to_owned());
    keep("mesh", text(&config.mesh));
    let order = config.mesh.order();
    keep("mesh-order", (*order != AxisOrder::DEFAULT).then(|| order.to_string()));
    keep("device", word(&config.device));
    keep("zero", text(&config.zero.number()));
    keep("micro-batches", text(&config.micro_batches));
    if let Some(pipeline) = &config.pipeline {
        keep(
            "schedule",
            match &pipeline.schedule {
                ScheduleSource::File(path) => absolute(path),
                named => text(named),
            },
        );
        let is_named = matches!(pipeline.schedule, ScheduleSource::Named(_));
        let stages = pipeline.virtual_stages.filter(|_| is_named);
        keep("virtual-stages", stages.map(|count| count.to_string()));
        keep(
            "stages",
            match &pipeline.stages {
                StageCut::Measured(path) => absolute(path),
                cut => text(cut),
            },
        );
    }
    keep("recompute", config.recompute.map(|policy| policy.to_string()));
    keep("cp", config.context.map(|style| style.to_string()));
    keep("dtype", word(&config.dtype));
    keep("reduce-dtype", word(&config.reduce_dtype));
    match &config.model {
        ModelSource::InitFrom(folder) => {
            keep("init-from", absolute(folder));
            let keys = &config.accept_keys;
            keep("accept-keys", (!keys.is_empty()).then(|| keys.join(",")));
        }
        ModelSource::New(sizes) => {
            keep("hidden", text(&sizes.hidden));
            keep("layers", text(&sizes.layers));
            keep("heads", text(&sizes.heads));
            keep("kv-heads", sizes.kv_heads.map(|count| count.to_string()));
            keep("ffn", sizes.ffn.map(|width| width.to_string()));
            keep("vocab", text(&sizes.vocab));
            keep("tied", switch(sizes.tied));
        }
    }
    let balance = |weight: f64| match weight {
        0.0 => "none".to_owned(),
        weight => format!("batch={weight}"),
    };
    keep("balance", config.balance.map(balance));
    keep("z-loss", config.z_loss.map(|weight| weight.to_string()));
    keep("data", config.data.as_deref().and_then(absolute));
    keep(
        "tokenizer",
        match config.tokenizer.as_deref() {
            // A word, and no path.
            Some(bytes) if bytes == Path::new("bytes") => text(&"bytes"),
            path => path.and_then(absolute),
        },
    );
    keep("order", text(&config.order));
    if let Some(documents) = &config.documents {
        keep("documents", text(&documents.end));
        keep("pack", switch(documents.packs));
        keep("mask-borders", switch(documents.masks_borders));
    }
    keep("batch", text(&config.batch));
    keep("seq", text(&config.seq));
    keep("steps", text(&config.steps));
    keep("seed", text(&config.seed));
    let optimizer = &config.optimizer;
    let choice = &optimizer.choice;
    keep("optimizer", text(&choice.name));
    keep("betas", choice.flags.betas.map(|(first, second)| format!("{first},{second}")));
    keep("eps", choice.flags.eps.map(|eps| eps.to_string()));
    keep("momentum", choice.flags.momentum.map(|momentum| momentum.to_string()));
    keep("weight-decay", text(&optimizer.weight_decay));
    keep("lr", text(&optimizer.lr.peak));
    keep("lr-schedule", word(&optimizer.lr.decay));
    let has_end = optimizer.lr.decay != Decay::Constant;
    keep("min-lr", has_end.then(|| optimizer.lr.min.to_string()));
    keep("warmup", text(&optimizer.lr.warmup));
    keep("clip", text(&optimizer.clip.unwrap_or(0.0)));
    keep("ema", optimizer.ema.map(|decay| decay.to_string()));
    keep("sample-tokens", text(&config.sample_tokens));
    flags
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
        let is_kept = |flag: &&Flag| !NOT_KEPT.contains(&flag.name);
        match (Flag::find(name).filter(is_kept), value.as_str()) {
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
    // A size that follows from others is not saved.
    let may_be_absent = |name: &&str| ["kv-heads", "ffn"].contains(name);
    for name in SIZES.into_iter().filter(|_| !flags.contains_key("init-from")) {
        let value = match flags.get(name) {
            None if may_be_absent(&name) => continue,
            saved => saved.copied().unwrap_or("false"),
        };
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
    // The sizes of a folder and of flags exclude each other.
    if SIZES.into_iter().any(|name| given.contains_key(name)) {
        left_out.extend(["init-from", "accept-keys"]);
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
fn is_same(name: &str, now: &str, saved: &str) -> bool {
    let [now, saved] = [now, saved].map(str::trim);
    if name == "mesh" {
        let [now, saved] = [now, saved].map(|text| text.parse::<MeshShape>());
        return matches!((now, saved), (Ok(now), Ok(saved)) if now == saved);
    }
    let is_same_number = match (now.parse::<f64>(), saved.parse::<f64>()) {
        (Ok(now), Ok(saved)) => now == saved,
        _ => false,
    };
    now == saved || is_same_number
}

/// Returns the word of a value that is serialized as it is given.
fn word(value: &impl Serialize) -> Option<String> {
    serde_json::to_value(value).ok()?.as_str().map(str::to_owned)
}

/// Returns a path that leads to the same file from any folder; `None` if it is no text.
fn absolute(path: &Path) -> Option<String> {
    let absolute = std::path::absolute(path).ok()?;
    absolute.into_os_string().into_string().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::config::flags::FlagKind;
    use crate::train::config::settings::FLAGS;

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
             --micro-batches 4 --layers 6 --batch 8 --dtype bf16 --reduce-dtype bf16",
            "t --mesh pp=2 --schedule /a/b.csv --stages /a/b.json",
            "t --mesh cp=2,fsdp=2 --cp ulysses --zero 1 --documents 7 --pack --mask-borders --order shuffled",
            "t --init-from /models/a --data /a/b.txt --tokenizer /a/t.json --recompute every=2 --accept-keys x,y.z",
            "t --balance batch=0.05 --z-loss 1e-3",
            "t --balance none",
            "t --optimizer muon --momentum 0.8 --betas 0.8,0.99 --eps 1e-6 --lr 3e-4 --lr-schedule wsd --warmup 5 \
             --min-lr 1e-5 --weight-decay 0.25 --clip 0 --ema 0.999 --sample-tokens 0",
            "t --optimizer sgd --momentum 0.9 --lr-schedule cosine",
            "t --device cuda",
            "t --tokenizer bytes",
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

    /// Each new flag is kept, or listed as one that is not.
    #[test]
    fn every_flag_is_kept_or_not() {
        let lines = [
            "t --mesh pp=2 --mesh-order pp --recompute sqrt --data a --tokenizer b --documents 1 --pack --mask-borders \
             --ema 0.5 --kv-heads 2 --ffn 2 --tied --optimizer muon",
            "t --mesh cp=2 --cp ring --init-from a --accept-keys b --balance none --z-loss 0 --lr-schedule wsd",
        ];
        let kept: Vec<_> = lines.iter().flat_map(|line| kept_flags(&parse(line))).collect();
        for flag in FLAGS {
            let is_kept = kept.iter().any(|(name, _)| *name == flag.name);
            assert_ne!(is_kept, NOT_KEPT.contains(&flag.name), "--{}", flag.name);
        }
    }
}
