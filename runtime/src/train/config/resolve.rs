//! Resolution of the given values to a checked [`Config`].

use std::path::{Path, PathBuf};

use super::given::GivenMap;
use super::values::Values;
use super::{
    Config, ConfigError, DeviceChoice, ModelSizes, ModelSource, Optimizers, SaveConfig, TimeLimit,
    optimizer, pipeline, preflight, sharding,
};
use crate::data::{DocumentOptions, Order};
use crate::mesh::{MeshError, MeshShape};

/// Flags with the sizes of a new model.
pub const SIZES: [&str; 7] = ["hidden", "layers", "heads", "kv-heads", "ffn", "vocab", "tied"];

/// Checks all values and their combinations.
pub fn resolve_config(given: GivenMap, optimizers: &Optimizers) -> Result<Config, ConfigError> {
    let mut values = Values::new(given);
    let mesh = mesh(&mut values);
    let device = device_choice(&mut values);
    let (dtype, reduce_dtype) = sharding::dtypes(&mut values, device);
    let (resume, resume_auto) = resume(&mut values);
    let config = Config {
        config_file: values.path("config"),
        mesh,
        zero: sharding::zero(&mut values, &mesh),
        pipeline: pipeline::pipeline(&mut values, &mesh),
        micro_batches: values.size("micro-batches"),
        recompute: sharding::recompute(&mut values),
        context: sharding::context(&mut values, &mesh),
        memory_limit: values.bytes("memory-limit"),
        device,
        nondeterministic: nondeterministic(&mut values, device),
        graphs: graphs(&mut values, device),
        dtype,
        reduce_dtype,
        threads: values.count("threads").map(|n| n as usize),
        model: model(&mut values),
        accept_keys: accept_keys(&mut values),
        balance: balance(&mut values),
        z_loss: z_loss(&mut values),
        data: values.path("data"),
        tokenizer: values.path("tokenizer"),
        order: match values.choice("order").as_str() {
            "shuffled" => Order::Shuffled,
            _ => Order::Sequential,
        },
        documents: documents(&mut values),
        batch: values.size("batch"),
        seq: values.size("seq"),
        steps: values.count("steps").unwrap_or(1),
        seed: values.count("seed").unwrap_or(0),
        optimizer: optimizer::optimizer(&mut values, optimizers),
        explain: values.switch("explain"),
        preflight: preflight::preflight(&mut values),
        save: save_config(&mut values),
        resume,
        resume_auto,
        stop_after: stop_after(&mut values),
        export_hf: values.path("export-hf"),
        metrics: values.path("metrics"),
        trace: values.path("trace"),
        stage_times: pipeline::stage_times(&mut values),
        sample_tokens: values.size("sample-tokens"),
    };
    values.finish_reading().map(|()| config).map_err(ConfigError::Invalid)
}

/// Returns the mesh. Without `--data` and `--init-from` it defaults to the four ranks of the demonstration run.
fn mesh(values: &mut Values) -> MeshShape {
    let text = match values.text("mesh") {
        Some(text) => text,
        None if values.is_given("data") || values.is_given("init-from") => "1".into(),
        None => "dp=2,tp=2".into(),
    };
    if text.starts_with("auto") {
        let message =
            "`auto` needs the model: create the trainer by Trainer::from_args, or name the axes";
        values.problem("mesh", message.into());
        return MeshShape::SINGLE;
    }
    let mesh = text.parse().unwrap_or_else(|error: MeshError| {
        values.problem("mesh", error.to_string());
        MeshShape::SINGLE
    });
    let Some(order) = values.text("mesh-order") else { return mesh };
    let ordered = order.parse().and_then(|order| mesh.with_order(order));
    ordered.unwrap_or_else(|error| {
        values.problem("mesh-order", error.to_string());
        mesh
    })
}

fn nondeterministic(values: &mut Values, device: DeviceChoice) -> bool {
    let given = values.switch("nondeterministic");
    if given && device == DeviceChoice::Cpu && values.fits("device") {
        let message =
            "the CPU has no nondeterministic algorithms; use --device cuda, or leave it out";
        values.problem("nondeterministic", message.into());
    }
    given
}

fn graphs(values: &mut Values, device: DeviceChoice) -> bool {
    let refused = values.switch("no-graphs");
    if refused && device == DeviceChoice::Cpu && values.fits("device") {
        let message = "the CPU has no CUDA graphs; use --device cuda, or leave it out";
        values.problem("no-graphs", message.into());
    }
    device == DeviceChoice::Cuda && !refused
}

fn device_choice(values: &mut Values) -> DeviceChoice {
    match values.choice("device").as_str() {
        "cuda" => DeviceChoice::Cuda,
        _ => DeviceChoice::Cpu,
    }
}

fn model(values: &mut Values) -> ModelSource {
    if let Some(folder) = values.path("init-from") {
        for name in SIZES.into_iter().filter(|name| values.is_given(name)).collect::<Vec<_>>() {
            let message = "cannot be combined with --init-from, whose config.json sets the sizes";
            values.problem(name, message.into());
        }
        return ModelSource::InitFrom(folder);
    }
    let hidden = values.size("hidden");
    let heads = values.size("heads");
    let kv_heads = values.count("kv-heads").map(|n| n as usize);
    let ffn = values.count("ffn").map(|n| n as usize);
    if !hidden.is_multiple_of(heads) {
        values.problem("heads", format!("{heads} does not divide --hidden {hidden}"));
    }
    if let Some(kv_heads) = kv_heads.filter(|kv_heads| !heads.is_multiple_of(*kv_heads)) {
        values.problem("kv-heads", format!("{kv_heads} does not divide --heads {heads}"));
    }
    let (layers, vocab) = (values.size("layers"), values.size("vocab"));
    ModelSource::New(ModelSizes {
        hidden,
        layers,
        heads,
        kv_heads,
        ffn,
        vocab,
        tied: values.switch("tied"),
    })
}

fn accept_keys(values: &mut Values) -> Vec<String> {
    let Some(text) = values.text("accept-keys") else { return Vec::new() };
    if !values.is_given("init-from") {
        values.problem("accept-keys", "needs --init-from DIR, whose keys it names".into());
    }
    let keys: Vec<String> = text.split(',').map(|key| key.trim().to_owned()).collect();
    if keys.iter().any(String::is_empty) {
        let message = format!("`{text}` has a key without a name; write for example `a,b`");
        values.problem("accept-keys", message);
    }
    keys
}

fn balance(values: &mut Values) -> Option<f64> {
    let text = values.text("balance")?;
    let (kind, weight) = text.split_once('=').unwrap_or((&text, ""));
    let weight =
        weight.trim().parse().ok().filter(|weight: &f64| weight.is_finite() && *weight >= 0.0);
    let problem = match (kind.trim(), weight) {
        ("none", None) if !text.contains('=') => return Some(0.0),
        ("batch", Some(weight)) => return Some(weight),
        ("batch", None) => {
            format!("`{text}` has no weight of at least 0; write for example batch=0.01")
        }
        _ => format!("`{text}` is not known; use none or batch=X"),
    };
    values.problem("balance", problem);
    None
}

fn z_loss(values: &mut Values) -> Option<f64> {
    values.is_given("z-loss").then(|| values.number("z-loss"))
}

fn documents(values: &mut Values) -> Option<DocumentOptions> {
    let end = values.count("documents");
    let (packs, masks_borders) = (values.switch("pack"), values.switch("mask-borders"));
    if end.is_none() {
        // A file may also turn them off.
        for (name, is_on) in [("pack", packs), ("mask-borders", masks_borders)] {
            if is_on {
                values.problem(name, "needs --documents ID".into());
            }
        }
    }
    Some(DocumentOptions { end: end? as u32, packs, masks_borders })
}

fn save_config(values: &mut Values) -> Option<SaveConfig> {
    let every = values.count("save-every");
    let asynchronous = values.switch("save-async");
    let keep = values.count("keep").map(|n| n as usize);
    let max_failed = values.count("max-failed-saves").map_or(3, |n| n as usize);
    let dir = values.path("save");
    if asynchronous && every.is_none() && values.fits("save-async") {
        let message = "needs --save-every N: a run waits for the checkpoint after its last step";
        values.problem("save-async", message.into());
    }
    if dir.is_none() {
        for name in ["save-every", "keep", "max-failed-saves"] {
            if values.is_given(name) && values.fits(name) {
                values.problem(name, "needs --save DIR".into());
            }
        }
    }
    Some(SaveConfig { dir: dir?, every, asynchronous, keep, max_failed })
}

/// Returns the path to resume from, and true for `auto`.
fn resume(values: &mut Values) -> (Option<PathBuf>, bool) {
    let path = values.path("resume");
    if path.as_deref() != Some(Path::new("auto")) {
        return (path, false);
    }
    let dir = values.path("save");
    if dir.is_none() && !values.is_given("preflight") {
        let message = "auto needs --save DIR, whose newest checkpoint it continues from (a folder of this name is \
                       ./auto)";
        values.problem("resume", message.into());
    }
    (dir, true)
}

fn stop_after(values: &mut Values) -> Option<TimeLimit> {
    let limit = values.time("stop-after")?;
    if !values.is_given("save") && values.fits("stop-after") {
        values.problem("stop-after", "needs --save DIR, from which the run is continued".into());
    }
    Some(limit)
}
