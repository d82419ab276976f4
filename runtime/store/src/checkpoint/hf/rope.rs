//! Rotary parameters in a `config.json`.
//!
//! They are an object `rope_parameters` since version 5 of `transformers`; before, `rope_theta` is at the top level and
//! an object `rope_scaling` has the scaling, whose name is `rope_type` or, in older files, `type`.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use meshwright_core::rotary::{
    Llama3Scaling, LongRopeScaling, RopeParameters, RopeScaling, YarnScaling,
};

use super::HfSettings;

/// The objects with rotary parameters.
const OBJECTS: [&str; 2] = ["rope_parameters", "rope_scaling"];

/// The names of scalings that are supported, for messages.
const SUPPORTED: &str =
    "\"default\", \"linear\", \"dynamic\", \"yarn\", \"llama3\" and \"longrope\"";

/// The base of wavelengths.
const THETA: &str = "rope_theta";

/// The fraction of a head that rotates.
const FRACTION: &str = "partial_rotary_factor";

/// The length before an extension.
const ORIGINAL: &str = "original_max_position_embeddings";

/// The keys of scalings, none of which is an object.
const OF_SCALINGS: [&str; 16] = [
    "rope_type",
    "type",
    "factor",
    ORIGINAL,
    "attention_factor",
    "beta_fast",
    "beta_slow",
    "mscale",
    "mscale_all_dim",
    "truncate",
    "low_freq_factor",
    "high_freq_factor",
    "short_factor",
    "long_factor",
    THETA,
    FRACTION,
];

/// Reads the rotary parameters of a model with heads of `head_dim` that was made for `max_positions`. The base is
/// `theta` in a file without one.
///
/// # Errors
/// A scaling that is not supported, by name, numbers that are missing or out of range, two objects that differ, and a
/// base or a fraction beside another one in an object.
pub fn read_rope(
    keys: &HfSettings<'_>,
    theta: f64,
    head_dim: usize,
    max_positions: usize,
) -> Result<RopeParameters, String> {
    let plain = RopeParameters {
        theta: keys.number(THETA)?.unwrap_or(theta),
        partial_rotary_factor: keys.number(FRACTION)?.unwrap_or(1.0),
        scaling: RopeScaling::Default,
    };
    let rope = read_rope_objects(keys, plain, head_dim, max_positions)?;
    for object in OBJECTS {
        require_same_number(keys, THETA, &[object, THETA])?;
        require_same_number(keys, FRACTION, &[object, FRACTION])?;
    }
    Ok(rope)
}

/// Refuses a number at the top level of a file beside another one at `path`, which programs would take instead.
///
/// # Errors
/// Two numbers that differ, and values that are no numbers.
pub fn require_same_number(keys: &HfSettings<'_>, key: &str, path: &[&str]) -> Result<(), String> {
    let Some((last, objects)) = path.split_last() else { return Ok(()) };
    let mut inner = keys.clone();
    for object in objects {
        match inner.object(object)? {
            Some(found) => inner = found,
            None => return Ok(()),
        }
    }
    match (keys.number(key)?, inner.number(last)?) {
        (Some(outer), Some(inner)) if outer != inner => Err(format!(
            "{key} is {outer}, but {} is {inner}; leave one of them out",
            path.join(".")
        )),
        _ => Ok(()),
    }
}

/// Reads the rotary parameters of a model as [`read_rope`], with the base and the rotated fraction of `plain` in a file
/// whose objects do not have them: some families have other keys for them.
///
/// # Errors
/// As [`read_rope`].
pub fn read_rope_objects(
    keys: &HfSettings<'_>,
    plain: RopeParameters,
    head_dim: usize,
    max_positions: usize,
) -> Result<RopeParameters, String> {
    let lengths = Lengths { original: keys.count(ORIGINAL)?, max_positions };
    let mut found: Option<(&str, RopeParameters)> = None;
    for name in OBJECTS {
        let Some(object) = keys.object(name)? else { continue };
        // Some numbers are of the top level.
        let is_outer = |key: &str| match key {
            ORIGINAL => lengths.original.is_some(),
            _ => [THETA, FRACTION].contains(&key) && object.get(key).is_none(),
        };
        let in_object = |problem: String| match problem.split_once(' ') {
            Some((key, _)) if is_outer(key) => problem,
            _ => format!("{name}.{problem}"),
        };
        let parameters = read_object(&object, &plain, &lengths).map_err(in_object)?;
        parameters.rotary_dim(head_dim).map_err(in_object)?;
        if let Some((other, _)) = found.filter(|(_, other)| *other != parameters) {
            return Err(format!("{other} and {name} differ; leave one of them out"));
        }
        found = Some((name, parameters));
    }
    match found {
        Some((_, parameters)) => Ok(parameters),
        None => plain.rotary_dim(head_dim).map(|_| plain),
    }
}

/// Reads the rotary parameters of the object at `path`, such as `rope_parameters` and the kind of some layers; `None`
/// if the file does not have it. Absent keys have the values of `plain`.
///
/// # Errors
/// As [`read_rope`].
pub fn read_rope_object(
    keys: &HfSettings<'_>,
    path: &[&str],
    plain: &RopeParameters,
    head_dim: usize,
    max_positions: usize,
) -> Result<Option<RopeParameters>, String> {
    let Some((name, inner)) = path.split_first() else {
        let lengths = Lengths { original: None, max_positions };
        let parameters = read_object(keys, plain, &lengths)?;
        parameters.rotary_dim(head_dim)?;
        return Ok(Some(parameters));
    };
    let Some(object) = keys.object(name)? else { return Ok(None) };
    let parameters = read_rope_object(&object, inner, plain, head_dim, max_positions);
    parameters.map_err(|problem| format!("{name}.{problem}"))
}

/// Sequence lengths at the top level of `config.json`.
struct Lengths {
    /// `original_max_position_embeddings`, which takes precedence over the key of the object.
    original: Option<usize>,
    /// `max_position_embeddings`.
    max_positions: usize,
}

/// Reads one object; `plain` has the values of absent keys.
fn read_object(
    object: &HfSettings<'_>,
    plain: &RopeParameters,
    lengths: &Lengths,
) -> Result<RopeParameters, String> {
    refuse_other_forms(object)?;
    // Newer files have both.
    let older = object.text("type")?;
    let kind = match object.text("rope_type")?.or(older) {
        // Names of `longrope` in older files of Phi-3.
        Some("su") => Some("longrope"),
        Some("yarn") if object.get("short_factor").is_some() => Some("longrope"),
        kind => kind,
    };
    let required = |key: &str| {
        let number = object.number(key)?;
        number.ok_or_else(|| format!("{key} is missing"))
    };
    let original_positions = || -> Result<usize, String> {
        let own = object.count(ORIGINAL)?;
        Ok(lengths.original.or(own).unwrap_or(lengths.max_positions))
    };
    if let (None, Some((key, _))) = (kind, object.entries().find(is_of_scaling)) {
        return Err(format!(
            "rope_type is missing, but {key} is given; name the scaling, one of {SUPPORTED}, or leave {key} out"
        ));
    }
    let scaling = match kind.unwrap_or("default") {
        "default" => RopeScaling::Default,
        "linear" => RopeScaling::Linear { factor: required("factor")? },
        "dynamic" => RopeScaling::Dynamic {
            factor: required("factor")?,
            trained_positions: lengths.max_positions,
        },
        "yarn" => {
            let original_positions = original_positions()?;
            // DeepSeek leaves the factor to the two lengths.
            let of_lengths = lengths.max_positions as f64 / original_positions as f64;
            let paper = YarnScaling::new(
                object.number("factor")?.unwrap_or(of_lengths),
                original_positions,
            );
            RopeScaling::Yarn(YarnScaling {
                attention_factor: object.number("attention_factor")?,
                beta_fast: object.number("beta_fast")?.unwrap_or(paper.beta_fast),
                beta_slow: object.number("beta_slow")?.unwrap_or(paper.beta_slow),
                mscale: object.number("mscale")?,
                mscale_all_dim: object.number("mscale_all_dim")?,
                truncate: object.switch("truncate")?.unwrap_or(paper.truncate),
                ..paper
            })
        }
        "llama3" => RopeScaling::Llama3(Llama3Scaling {
            factor: required("factor")?,
            low_freq_factor: required("low_freq_factor")?,
            high_freq_factor: required("high_freq_factor")?,
            original_positions: original_positions()?,
        }),
        "longrope" => {
            let divisors =
                |key: &str| object.numbers(key)?.ok_or_else(|| format!("{key} is missing"));
            let original_positions = original_positions()?;
            // Phi-3 leaves the factor to the two lengths.
            let of_lengths = (lengths.max_positions as f64 / original_positions as f64).max(1.0);
            RopeScaling::LongRope(Arc::new(LongRopeScaling {
                short: divisors("short_factor")?,
                long: divisors("long_factor")?,
                original_positions,
                factor: object.number("factor")?.unwrap_or(of_lengths),
                attention_factor: object.number("attention_factor")?,
            }))
        }
        other => return Err(format!("rope_type is \"{other}\"; only {SUPPORTED} are supported")),
    };
    Ok(RopeParameters {
        theta: object.number(THETA)?.unwrap_or(plain.theta),
        partial_rotary_factor: object.number(FRACTION)?.unwrap_or(plain.partial_rotary_factor),
        scaling,
    })
}

/// Returns true for a key of a scaling type that has a value.
fn is_of_scaling((key, value): &(&str, &Value)) -> bool {
    ![THETA, FRACTION].contains(key) && !value.is_null()
}

/// Refuses objects that describe unsupported embeddings, because ignoring their keys would change the results.
fn refuse_other_forms(object: &HfSettings<'_>) -> Result<(), String> {
    if object.get("mrope_section").is_some() {
        return Err(
            "mrope_section is given, but positions of several dims are not supported".into()
        );
    }
    let is_other = |(key, value): &(&str, &Value)| value.is_object() && !OF_SCALINGS.contains(key);
    match object.entries().find(is_other) {
        Some((key, _)) => Err(format!(
            "{key} is an object, but rotary parameters of their own for some layers are not supported in this family"
        )),
        None => Ok(()),
    }
}

/// Adds rotary parameters to an exported `config.json`, for versions of `transformers` before 5 and for later ones.
pub fn write_rope(parameters: &RopeParameters, config: &mut Map<String, Value>) {
    let RopeParameters { theta, partial_rotary_factor, scaling } = parameters;
    let mut object = scaling_keys(scaling);
    object.insert(THETA.into(), json!(theta));
    object.insert("rope_type".into(), json!(scaling.name()));
    config.insert(THETA.into(), json!(theta));
    if let RopeScaling::LongRope(scaling) = scaling {
        // Where versions before 5 expect it.
        let positions = json!(scaling.original_positions);
        config.insert(ORIGINAL.into(), positions);
    }
    if *partial_rotary_factor != 1.0 {
        for keys in [&mut object, &mut *config] {
            keys.insert(FRACTION.into(), json!(partial_rotary_factor));
        }
    }
    if *scaling != RopeScaling::Default {
        config.insert("rope_scaling".into(), Value::Object(object.clone()));
    }
    config.insert("rope_parameters".into(), Value::Object(object));
}

/// Returns the numbers of a scaling under their names.
fn scaling_keys(scaling: &RopeScaling) -> Map<String, Value> {
    let keys = match scaling {
        RopeScaling::Default => json!({}),
        RopeScaling::Linear { factor } | RopeScaling::Dynamic { factor, .. } => {
            json!({ "factor": factor })
        }
        RopeScaling::Yarn(yarn) => json!({
            "factor": yarn.factor,
            ORIGINAL: yarn.original_positions,
            "attention_factor": yarn.attention_factor,
            "beta_fast": yarn.beta_fast,
            "beta_slow": yarn.beta_slow,
            "mscale": yarn.mscale,
            "mscale_all_dim": yarn.mscale_all_dim,
            "truncate": yarn.truncate,
        }),
        RopeScaling::Llama3(llama3) => json!({
            "factor": llama3.factor,
            "low_freq_factor": llama3.low_freq_factor,
            "high_freq_factor": llama3.high_freq_factor,
            ORIGINAL: llama3.original_positions,
        }),
        RopeScaling::LongRope(scaling) => json!({
            "short_factor": scaling.short,
            "long_factor": scaling.long,
            "factor": scaling.factor,
            ORIGINAL: scaling.original_positions,
            "attention_factor": scaling.attention_factor,
        }),
    };
    let Value::Object(keys) = keys else { unreachable!("written as an object") };
    // An absent number is one that follows from others.
    keys.into_iter().filter(|(_, value)| !value.is_null()).collect()
}
