//! Rotary parameters of a Gemma 3, whose layers with a window have others than its layers without one.

use serde_json::{Map, Value, json};

use meshwright_core::rotary::RopeParameters;
use meshwright_store::checkpoint::hf::{
    HfSettings, read_rope_object, require_same_number, write_rope,
};

/// The kind of layers without a window.
const FULL: &str = "full_attention";

/// The kind of layers with a window.
const SLIDING: &str = "sliding_attention";

/// Base of layers without a window.
pub const GLOBAL_THETA: f64 = 1e6;

/// Base of layers with a window.
pub const LOCAL_THETA: f64 = 1e4;

/// The base of wavelengths.
const THETA: &str = "rope_theta";

/// The object with an object for each kind of layers.
const OBJECT: &str = "rope_parameters";

/// The scaling of layers without a window, in files from before version 5 of `transformers`.
const OLDER_OBJECT: &str = "rope_scaling";

/// The base of layers with a window, in files from before version 5 of `transformers`.
const OLDER_LOCAL_THETA: &str = "rope_local_base_freq";

/// Reads the rotary parameters of layers without a window, and of layers with one. In files from before version 5 of
/// `transformers` they are `rope_theta` with `rope_scaling`, and `rope_local_base_freq`.
///
/// # Errors
/// As `read_rope`.
pub fn read_ropes(
    settings: &HfSettings<'_>,
    head_dim: usize,
    max_positions: usize,
) -> Result<[RopeParameters; 2], String> {
    let base = |key: &str, theta: f64| -> Result<RopeParameters, String> {
        let plain = RopeParameters::with_theta(settings.number(key)?.unwrap_or(theta));
        let checked = plain.rotary_dim(head_dim).map_err(|problem| problem.replacen(THETA, key, 1));
        checked.map(|_| plain)
    };
    let object = |path: &[&str], plain: &RopeParameters| {
        read_rope_object(settings, path, plain, head_dim, max_positions)
    };
    let plain = base(THETA, GLOBAL_THETA)?;
    let global = object(&[OBJECT, FULL], &plain)?;
    let older = object(&[OLDER_OBJECT], &plain)?;
    if let (Some(newer), Some(older)) = (&global, &older)
        && newer != older
    {
        return Err(format!("{OLDER_OBJECT} and {OBJECT}.{FULL} differ; leave one of them out"));
    }
    let plain_local = base(OLDER_LOCAL_THETA, LOCAL_THETA)?;
    let local = object(&[OBJECT, SLIDING], &plain_local)?;
    for (key, path) in [
        (THETA, &[OBJECT, FULL, THETA][..]),
        (THETA, &[OLDER_OBJECT, THETA]),
        (OLDER_LOCAL_THETA, &[OBJECT, SLIDING, THETA]),
    ] {
        require_same_number(settings, key, path)?;
    }
    Ok([global.or(older).unwrap_or(plain), local.unwrap_or(plain_local)])
}

/// Adds the rotary parameters to an exported `config.json`, for versions of `transformers` before 5 and for later ones.
pub fn write_ropes([global, local]: [&RopeParameters; 2], config: &mut Map<String, Value>) {
    let mut of_local = Map::new();
    write_rope(local, &mut of_local);
    write_rope(global, config);
    // The objects have it, too.
    config.remove("original_max_position_embeddings");
    let of_kinds = json!({ FULL: config[OBJECT], SLIDING: of_local[OBJECT] });
    config.insert(OBJECT.to_owned(), of_kinds);
    config.insert(OLDER_LOCAL_THETA.to_owned(), json!(local.theta));
}
