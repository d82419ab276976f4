//! Keys that only some rows have, or that rows have in different ways.

use serde_json::Value;

use crate::decoder_keys::{layer_types, no_biases, no_layer_types, no_window, unused_window};
use meshwright_core::rotary::RopeScaling;
use meshwright_store::checkpoint::hf::{HfKeys, HfSettings, KeyResult};

use super::DecoderConfig;
use super::rows::{Biases, Windows};

impl DecoderConfig {
    /// Refuses frequencies that switch at a length which the file does not state: programs differ in its default.
    pub(super) fn require_original_positions(&self, keys: &HfKeys<'_>) -> KeyResult {
        let key = "original_max_position_embeddings";
        let (Some(settings), RopeScaling::LongRope(_)) = (keys.settings(), &self.rope.scaling)
        else {
            return Ok(());
        };
        let mut stated = settings.count(key)?;
        for name in ["rope_parameters", "rope_scaling"] {
            let object = settings.object(name)?;
            let own = object.map(|object| object.count(key)).transpose()?;
            stated = stated.or(own.flatten());
        }
        keys.require(stated.is_some(), || format!("{key} is missing, which \"longrope\" needs"))
    }

    /// Names the keys of biases that the family has.
    pub(super) fn biases(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        match self.row.biases {
            Biases::None => no_biases(keys, &["attention_bias", "mlp_bias"]),
            Biases::Qkv => {
                self.qkv_bias = true;
                no_biases(keys, &["mlp_bias"])
            }
            Biases::OfAttention => {
                keys.switch("attention_bias", &mut self.qkv_bias, false)?;
                self.output_bias = self.qkv_bias;
                no_biases(keys, &["mlp_bias"])
            }
            Biases::OfBoth => {
                keys.switch("attention_bias", &mut self.qkv_bias, false)?;
                self.output_bias = self.qkv_bias;
                keys.switch("mlp_bias", &mut self.mlp_bias, false)
            }
        }
    }

    /// Names the keys of windows, and of the layers that slide.
    pub(super) fn window_keys(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        let layers = self.layers;
        match self.row.windows {
            Windows::None => {
                keys.list(&["use_sliding_window", "sliding_window"]);
                let settings = keys.settings();
                let is_used = settings.map(|keys| keys.switch("use_sliding_window")).transpose()?;
                unused_window(keys)?;
                if is_used.flatten() != Some(false) {
                    no_window(keys)?;
                }
                keys.require(is_used.flatten() != Some(true), || {
                    "use_sliding_window is true; only models whose attention has no window are supported"
                        .into()
                })?;
                no_layer_types(keys)
            }
            Windows::AllLayers { absent } => {
                keys.optional_count("sliding_window", &mut self.window, absent)?;
                if keys.is_new() {
                    self.window = None;
                }
                // Of all layers alike.
                self.slides = vec![self.window.is_some()];
                keys.list(&["layer_types"]);
                let found = keys.settings().and_then(|settings| settings.get("layer_types"));
                let kind =
                    if self.window.is_some() { "sliding_attention" } else { "full_attention" };
                let is_same = |types: &Value| {
                    types.as_array().is_some_and(|types| types.iter().all(|own| *own == kind))
                };
                keys.require(found.is_none_or(is_same), || {
                    format!(
                        "layer_types is {}; all layers are of \"{kind}\" here",
                        found.unwrap_or(&Value::Null)
                    )
                })
            }
            Windows::OfLayers { absent, full } => {
                let mut is_used = self.window.is_some();
                keys.switch("use_sliding_window", &mut is_used, false)?;
                keys.optional_count("sliding_window", &mut self.window, absent)?;
                // Of older versions of `transformers`, which do not read `layer_types`.
                let mut first = self.slides.iter().position(|slides| *slides).unwrap_or(layers);
                if let Some(full) = full {
                    let read = |settings: &HfSettings<'_>| {
                        // Zero is a count here: all layers slide.
                        match settings.get("max_window_layers") {
                            Some(value) if value.as_u64() == Some(0) => Ok(0),
                            _ => Ok(settings.count("max_window_layers")?.unwrap_or(full)),
                        }
                    };
                    keys.field("max_window_layers", &mut first, layers, read)?;
                }
                if !is_used {
                    self.window = None;
                }
                let (has_window, rotates) = (self.window.is_some(), self.rotates.clone());
                let slides = |layer: usize| {
                    let is_kind = if full.is_some() { layer >= first } else { !rotates[layer] };
                    has_window && is_kind
                };
                layer_types(keys, &mut self.slides, layers, slides)?;
                let is_served = has_window || !self.slides.contains(&true);
                keys.require(is_served, || {
                    "layer_types has \"sliding_attention\", but there is no window: use_sliding_window is not true, or \
                     sliding_window is null"
                        .into()
                })
            }
        }
    }

    /// Names the keys of layers that do not rotate queries and keys.
    pub(super) fn rotation_keys(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        if !self.row.skips_rope {
            return Ok(());
        }
        let layers = self.layers;
        let mut interval = 4;
        keys.count("no_rope_layer_interval", &mut interval, 4)?;
        let of_interval =
            || (0..layers).map(|layer| !(layer + 1).is_multiple_of(interval)).collect::<Vec<_>>();
        let flags: Value = self.rotates.iter().map(|rotates| usize::from(*rotates)).collect();
        keys.write("no_rope_layers", flags);
        if keys.is_new() {
            self.rotates = of_interval();
        }
        let Some(settings) = keys.settings() else { return Ok(()) };
        self.rotates = match settings.get("no_rope_layers") {
            None => of_interval(),
            Some(value) => {
                let flag = |flag: &Value| match flag.as_u64() {
                    Some(0) => Some(false),
                    Some(1) => Some(true),
                    _ => None,
                };
                // Entries beyond the last layer are not used.
                let flags = value.as_array().filter(|flags| flags.len() >= layers);
                let flags = flags.and_then(|flags| flags[..layers].iter().map(flag).collect());
                flags.ok_or_else(|| {
                    format!(
                        "no_rope_layers must have a 0 or a 1 for each of num_hidden_layers {layers}, not {value}"
                    )
                })?
            }
        };
        Ok(())
    }
}
