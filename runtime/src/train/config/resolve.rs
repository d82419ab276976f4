//! From what was given to a checked [`Config`]; every rule about values lives here.

use std::path::PathBuf;
use std::str::FromStr;

use super::flags::{FLAGS, Flag, Kind};
use super::given::GivenMap;
use super::{
    Config, ConfigError, Device, ModelSizes, ModelSource, OptimizerConfig, Precision, Problem,
    SaveConfig, Source,
};
use crate::data::Order;
use crate::mesh::{MeshError, MeshShape};
use crate::train::{Decay, LrSchedule};

/// The flags that say the sizes of a new model.
const SIZES: [&str; 7] = ["hidden", "layers", "heads", "kv-heads", "ffn", "vocab", "tied"];

/// Checks every value and every combination of values.
pub fn resolve(given: GivenMap) -> Result<Config, ConfigError> {
    let mut values = Values { given, problems: Vec::new() };
    refuse_later(&mut values);
    let config = Config {
        mesh: mesh(&mut values),
        device: device(&mut values),
        dtype: dtype(&mut values),
        threads: values.count("threads").map(|n| n as usize),
        model: model(&mut values),
        data: values.path("data"),
        order: match values.choice("order").as_str() {
            "shuffled" => Order::Shuffled,
            _ => Order::Sequential,
        },
        batch: values.size("batch"),
        seq: values.size("seq"),
        steps: values.count("steps").unwrap_or(1),
        seed: values.count("seed").unwrap_or(0),
        optimizer: optimizer(&mut values),
        save: save(&mut values),
        resume: values.path("resume"),
        export_hf: values.path("export-hf"),
        metrics: values.path("metrics"),
        sample_tokens: values.size("sample-tokens"),
    };
    if values.problems.is_empty() { Ok(config) } else { Err(ConfigError::Invalid(values.problems)) }
}

/// Flags of the interface that later capabilities bring are refused, never ignored.
fn refuse_later(values: &mut Values) {
    for flag in FLAGS.iter().filter(|flag| flag.kind == Kind::Later) {
        if values.is_given(flag.name) {
            let message = format!("comes with a later version ({}); leave it out", flag.help);
            values.problem(flag.name, message);
        }
    }
}

/// Without data and model of the user's own, the run that shows what the project does: four ranks.
fn mesh(values: &mut Values) -> MeshShape {
    let text = match values.text("mesh") {
        Some(text) => text,
        None if values.is_given("data") || values.is_given("init-from") => "1".into(),
        None => "dp=2,tp=2".into(),
    };
    text.parse().unwrap_or_else(|error: MeshError| {
        values.problem("mesh", error.to_string());
        MeshShape::SINGLE
    })
}

fn device(values: &mut Values) -> Device {
    let device = values.choice("device");
    if device != "cpu" {
        values.problem("device", format!("{device} comes with a later version; use cpu"));
    }
    Device::Cpu
}

fn dtype(values: &mut Values) -> Precision {
    let dtype = values.choice("dtype");
    if dtype != "f32" {
        values.problem("dtype", format!("{dtype} comes with a later version; use f32"));
    }
    Precision::F32
}

fn model(values: &mut Values) -> ModelSource {
    if let Some(folder) = values.path("init-from") {
        for name in SIZES.into_iter().filter(|name| values.is_given(name)).collect::<Vec<_>>() {
            let message = "cannot be combined with --init-from, whose config.json gives the sizes";
            values.problem(name, message.into());
        }
        return ModelSource::InitFrom(folder);
    }
    let hidden = values.size("hidden");
    let heads = values.size("heads");
    let kv_heads = values.count("kv-heads").map_or(heads, |n| n as usize);
    // 8/3 of the width gives a gated feed-forward the size of a plain one of 4 (GLU Variants Improve Transformer,
    // arXiv 2002.05202, section 3).
    let ffn = values.count("ffn").map_or((8 * hidden / 3).next_multiple_of(64), |n| n as usize);
    if !hidden.is_multiple_of(heads) {
        values.problem("heads", format!("{heads} does not divide --hidden {hidden}"));
    } else if !(hidden / heads).is_multiple_of(2) {
        let width = hidden / heads;
        let message =
            format!("{heads} makes heads {width} wide; rotary positions need an even width");
        values.problem("heads", message);
    }
    if !heads.is_multiple_of(kv_heads) {
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

fn optimizer(values: &mut Values) -> OptimizerConfig {
    let steps = values.count("steps").unwrap_or(1);
    let lr = LrSchedule {
        decay: match values.choice("lr-schedule").as_str() {
            "cosine" => Decay::Cosine,
            "wsd" => Decay::Wsd,
            _ => Decay::Constant,
        },
        peak: values.number("lr"),
        min: values.number("min-lr"),
        warmup: values.count("warmup").unwrap_or(0),
        steps,
    };
    if lr.min > lr.peak {
        values.problem("min-lr", format!("{} is above --lr {}", lr.min, lr.peak));
    }
    if lr.warmup > steps {
        values.problem("warmup", format!("{} is more than --steps {steps}", lr.warmup));
    }
    OptimizerConfig {
        lr,
        betas: values.pair("betas"),
        eps: values.number("eps"),
        weight_decay: values.number("weight-decay"),
        clip: Some(values.number("clip")).filter(|norm| *norm > 0.0),
    }
}

fn save(values: &mut Values) -> Option<SaveConfig> {
    let every = values.count("save-every");
    let keep = values.count("keep").map(|n| n as usize);
    let dir = values.path("save");
    if dir.is_none() {
        for name in ["save-every", "keep"] {
            if values.is_given(name) {
                values.problem(name, "needs --save DIR".into());
            }
        }
    }
    Some(SaveConfig { dir: dir?, every, keep })
}

/// What was given, and the problems found so far.
///
/// Reading a value that does not fit notes a problem and goes on with the default, so that one pass finds them all.
struct Values {
    given: GivenMap,
    problems: Vec<Problem>,
}

impl Values {
    fn is_given(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    fn problem(&mut self, name: &str, message: String) {
        let source = self.given.get(name).map(|given| given.source.clone());
        let name = match source {
            Some(Source::File { .. }) => name.to_owned(),
            _ => format!("--{name}"),
        };
        let problem = Problem { source, message: format!("{name}: {message}") };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    fn path(&mut self, name: &str) -> Option<PathBuf> {
        let path = PathBuf::from(&self.given.get(name)?.text);
        if path.as_os_str().is_empty() {
            self.problem(name, "needs a path, not an empty text".into());
        }
        Some(path)
    }

    /// The value as text; `None` when it was not given and has no default.
    fn text(&mut self, name: &str) -> Option<String> {
        let default = Flag::find(name).map_or("", |flag| flag.default);
        let Some(given) = self.given.get(name) else {
            return Some(default.to_owned()).filter(|text| !text.is_empty());
        };
        match given.text.to_str() {
            Some(text) => Some(text.trim().to_owned()),
            None => {
                let message = format!("{} is not valid UTF-8", given.text.to_string_lossy());
                self.problem(name, message);
                None
            }
        }
    }

    /// The value as something that can be parsed and passes `fits`, else a problem "must be `wanted`" and the default.
    fn parsed<T: FromStr>(
        &mut self,
        name: &str,
        wanted: &str,
        fits: impl Fn(&T) -> bool,
    ) -> Option<T> {
        let text = self.text(name)?;
        let value = text.parse().ok().filter(&fits);
        if value.is_none() {
            self.problem(name, format!("must be {wanted}, not `{text}`"));
            return Flag::find(name)?.default.parse().ok();
        }
        value
    }

    fn count(&mut self, name: &str) -> Option<u64> {
        let (min, max) = match Flag::find(name).map(|flag| flag.kind) {
            Some(Kind::Count { min, max }) => (min, max),
            _ => (0, u64::MAX),
        };
        let is_too_large = self.text(name)?.parse().is_ok_and(|n: u64| n > max);
        let wanted = match min {
            _ if is_too_large => format!("at most {max}"),
            0 => "a whole number".to_owned(),
            min => format!("a whole number of at least {min}"),
        };
        self.parsed(name, &wanted, |n| (min..=max).contains(n))
    }

    /// A count that has a default.
    fn size(&mut self, name: &str) -> usize {
        self.count(name).unwrap_or(1) as usize
    }

    fn number(&mut self, name: &str) -> f64 {
        let fits = |x: &f64| x.is_finite() && *x >= 0.0;
        self.parsed(name, "a number of at least 0", fits).unwrap_or(0.0)
    }

    fn pair(&mut self, name: &str) -> (f64, f64) {
        let wanted = "two numbers in [0, 1) separated by a comma";
        let unit = |x: &f64| (0.0..1.0).contains(x);
        self.parsed(name, wanted, |pair: &Pair| unit(&pair.0) && unit(&pair.1))
            .map_or((0.0, 0.0), |pair| (pair.0, pair.1))
    }

    fn switch(&mut self, name: &str) -> bool {
        self.given.get(name).is_some_and(|given| given.text == "true")
    }

    fn choice(&mut self, name: &str) -> String {
        let words = match Flag::find(name).map(|flag| flag.kind) {
            Some(Kind::Choice(words)) => words,
            _ => &[],
        };
        let default = Flag::find(name).map_or("", |flag| flag.default).to_owned();
        let Some(text) = self.text(name) else { return default };
        if words.contains(&text.as_str()) {
            return text;
        }
        let hint = match Flag::nearest(&text, words.iter().copied()) {
            Some(near) => format!("; did you mean {near}?"),
            None => String::new(),
        };
        self.problem(name, format!("must be one of {}, not `{text}`{hint}", words.join(", ")));
        default
    }
}

/// Two numbers written `0.9,0.95`.
struct Pair(f64, f64);

impl FromStr for Pair {
    type Err = ();

    fn from_str(text: &str) -> Result<Pair, ()> {
        let (a, b) = text.split_once(',').ok_or(())?;
        let number = |text: &str| text.trim().parse().map_err(drop);
        Ok(Pair(number(a)?, number(b)?))
    }
}
