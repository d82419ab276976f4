//! Rotary parameters of a ModernBERT, whose layers with a window have others than its layers without one.

use serde_json::{Map, Value, json};

use meshwright_core::rotary::{RopeParameters, RopeScaling};
use meshwright_store::checkpoint::hf::{HfKeys, HfSettings, read_rope_object, write_rope};

/// The object with an object for each kind of layers.
const OBJECT: &str = "rope_parameters";

/// The kinds of layers, without and with a window, with the key and the value of the base in files from before version
/// 5 of `transformers`.
const KINDS: [(&str, &str, f64); 2] = [
    ("full_attention", "global_rope_theta", 160_000.0),
    ("sliding_attention", "local_rope_theta", 10_000.0),
];

/// Returns the rotary parameters of a new model.
pub fn default_ropes() -> [RopeParameters; 2] {
    KINDS.map(|(_, _, theta)| RopeParameters::with_theta(theta))
}

/// Names the rotary parameters of layers without a window, and of layers with one.
///
/// # Errors
/// As `read_rope`, and a scaling of both kinds together.
pub fn rope_keys(
    keys: &mut HfKeys<'_>,
    ropes: [&mut RopeParameters; 2],
    head_dim: usize,
    max_positions: usize,
) -> Result<(), String> {
    keys.list(&[OBJECT, "rope_scaling"]);
    let mut objects = Map::new();
    for ((kind, older, theta), rope) in KINDS.into_iter().zip(ropes) {
        keys.list(&[older]);
        if let Some(settings) = keys.settings() {
            *rope = read(settings, (kind, older, theta), head_dim, max_positions)?;
        } else if keys.is_new() {
            *rope = RopeParameters::with_theta(theta);
        }
        keys.write(older, rope.theta);
        let mut written = Map::new();
        write_rope(rope, &mut written);
        objects.insert(kind.to_owned(), written[OBJECT].clone());
        // Frequencies depend on the length that the model was made for.
        if let RopeScaling::Dynamic { trained_positions, .. } = rope.scaling {
            keys.write("max_position_embeddings", trained_positions);
        }
        let factor = rope.partial_rotary_factor;
        keys.require(factor == 1.0, || {
            format!(
                "partial_rotary_factor is {factor}; transformers rotates whole heads of this family whatever it is: \
                 leave it out"
            )
        })?;
    }
    keys.write(OBJECT, Value::Object(objects));
    let scaling = keys.settings().and_then(|settings| settings.get("rope_scaling"));
    match scaling {
        Some(scaling) => Err(format!(
            "rope_scaling is {scaling}; of a modernbert, {OBJECT} has an object for each kind of layers: {}",
            json!({ "full_attention": {}, "sliding_attention": {} })
        )),
        None => Ok(()),
    }
}

fn read(
    settings: &HfSettings<'_>,
    (kind, older, theta): (&str, &str, f64),
    head_dim: usize,
    max_positions: usize,
) -> Result<RopeParameters, String> {
    let theta = settings.number(older)?.unwrap_or(theta);
    let plain = RopeParameters::with_theta(theta);
    let rotary = plain.rotary_dim(head_dim);
    rotary.map_err(|problem| problem.replacen("rope_theta", older, 1))?;
    let object = read_rope_object(settings, &[OBJECT, kind], &plain, head_dim, max_positions)?;
    Ok(object.unwrap_or(plain))
}
