//! Parts of a configuration that decoders with grouped-query attention, rotary positions and gated feed-forwards share,
//! such as Llama and Mixtral.

use std::borrow::Cow;

use serde_json::Value;

use meshwright_core::rotary::{RopeParameters, RopeScaling};
use meshwright_store::checkpoint::hf::{DerivedTensor, HfSettings, TensorRole};

/// The sizes of the attention.
pub struct DecoderSizes {
    /// `hidden_size`.
    pub hidden: usize,
    /// `num_attention_heads`.
    pub heads: usize,
    /// `num_key_value_heads`.
    pub kv_heads: usize,
    /// `head_dim`; by default `hidden_size / num_attention_heads`.
    pub head_dim: usize,
}

impl DecoderSizes {
    /// Reads the sizes. A file without `num_key_value_heads` has `kv_heads` of them, or as many as query heads.
    ///
    /// # Errors
    /// Sizes that are missing or do not fit together.
    pub fn read(keys: &HfSettings<'_>, kv_heads: Option<usize>) -> Result<DecoderSizes, String> {
        let (hidden, heads) =
            (keys.required("hidden_size")?, keys.required("num_attention_heads")?);
        let kv_heads = keys.count("num_key_value_heads")?.or(kv_heads).unwrap_or(heads);
        if !heads.is_multiple_of(kv_heads) {
            return Err(format!(
                "num_key_value_heads {kv_heads} does not divide num_attention_heads {heads}"
            ));
        }
        let head_dim = match keys.count("head_dim")? {
            Some(width) => width,
            None if hidden.is_multiple_of(heads) => hidden / heads,
            None => {
                return Err(format!(
                    "num_attention_heads {heads} does not divide hidden_size {hidden}"
                ));
            }
        };
        if !head_dim.is_multiple_of(2) {
            return Err(format!("head_dim {head_dim} is odd; rotary positions need an even width"));
        }
        Ok(DecoderSizes { hidden, heads, kv_heads, head_dim })
    }
}

/// Returns `max_position_embeddings` of an exported file: the length that dynamic frequencies depend on, if they do.
pub fn exported_positions(rope: &RopeParameters, max_positions: usize) -> usize {
    match rope.scaling {
        RopeScaling::Dynamic { trained_positions, .. } => trained_positions,
        _ => max_positions,
    }
}

/// Returns the role of a tensor. Some folders also store the rotary frequencies, and the head that is tied to the
/// embedding; the tensors of a bare model omit the prefix `model.`.
pub fn tensor_role<'a>(
    stored: &'a str,
    tied: bool,
    rope: &RopeParameters,
    head_dim: usize,
) -> TensorRole<'a> {
    if stored.ends_with("rotary_emb.inv_freq") {
        return TensorRole::Derived(DerivedTensor::RotaryFrequencies(rope.clone(), head_dim));
    }
    if tied && stored == "lm_head.weight" {
        return TensorRole::Derived(DerivedTensor::TiedTo("model.embed_tokens.weight"));
    }
    TensorRole::Model(if is_bare_name(stored) {
        Cow::Owned(format!("model.{stored}"))
    } else {
        Cow::Borrowed(stored)
    })
}

/// Returns true for names of tensors of a decoder, also for those without a head.
pub fn is_tensor_name(stored: &str) -> bool {
    let part = stored.strip_prefix("model.").unwrap_or(stored);
    is_bare_name(part) || part.starts_with("rotary_emb.") || stored.starts_with("lm_head.")
}

/// Returns true for names of tensors of a decoder without a head.
fn is_bare_name(stored: &str) -> bool {
    ["embed_tokens.", "layers.", "norm."].iter().any(|part| stored.starts_with(part))
}

/// Reads `pad_token_id`. As in PyTorch, a negative one counts rows from the end.
pub fn read_padding(keys: &HfSettings<'_>, vocab: usize) -> Result<Option<usize>, String> {
    let Some(value) = keys.get("pad_token_id") else { return Ok(None) };
    let row = value.as_i64().map(|id| if id < 0 { id + vocab as i64 } else { id });
    match row.and_then(|row| usize::try_from(row).ok()).filter(|row| *row < vocab) {
        Some(row) => Ok(Some(row)),
        None => Err(format!(
            "pad_token_id is {value}, but the embedding has {vocab} rows; correct it, or set it to null if nothing is \
             padded"
        )),
    }
}

/// Refuses biases, which these keys switch on.
pub fn refuse_biases(keys: &HfSettings<'_>, biases: &[&str]) -> Result<(), String> {
    for key in biases {
        if keys.switch(key)? == Some(true) {
            return Err(format!("{key} is true; only models without biases are supported"));
        }
    }
    Ok(())
}

/// Refuses a rate above 0, such as that of dropout or of noise.
pub fn refuse_rate(keys: &HfSettings<'_>, key: &str) -> Result<(), String> {
    match keys.number(key)? {
        Some(rate) if rate > 0.0 => Err(format!("{key} is {rate}; only 0 is supported")),
        _ => Ok(()),
    }
}

/// Refuses a window of all layers.
pub fn refuse_window(keys: &HfSettings<'_>) -> Result<(), String> {
    match keys.get("sliding_window") {
        Some(window) => Err(format!(
            "sliding_window is {window}; only models whose attention has no window are supported"
        )),
        None => Ok(()),
    }
}

/// Refuses layers of other kinds than attention without a window.
pub fn refuse_layer_types(keys: &HfSettings<'_>) -> Result<(), String> {
    match keys.get("layer_types") {
        Some(Value::Array(types)) if types.iter().all(|kind| *kind == "full_attention") => Ok(()),
        Some(types) => {
            Err(format!("layer_types is {types}; only layers of \"full_attention\" are supported"))
        }
        None => Ok(()),
    }
}

/// Returns the width of a gated feed-forward beside a stream of `hidden` elements.
pub fn default_ffn(hidden: usize) -> usize {
    // 8/3 of the width gives a gated feed-forward the size of a plain one of 4 (GLU Variants Improve
    // Transformer, arXiv 2002.05202, section 3).
    (8 * hidden / 3).next_multiple_of(64)
}

/// Raises `max_position_embeddings` to `seq`, with a warning, unless frequencies depend on it.
pub fn extend_positions(
    max_positions: &mut usize,
    rope: &RopeParameters,
    seq: usize,
) -> Option<String> {
    if seq <= *max_positions || matches!(rope.scaling, RopeScaling::Dynamic { .. }) {
        return None;
    }
    let made_for = std::mem::replace(max_positions, seq);
    Some(format!(
        "{seq} tokens are more than the {made_for} positions for which the model was made (max_position_embeddings); \
         --export-hf writes {seq}"
    ))
}

/// Returns the width of a head.
///
/// # Errors
/// An odd width, in a message that begins with the flag.
pub fn head_width(hidden: usize, heads: usize) -> Result<usize, String> {
    let width = hidden / heads;
    if !width.is_multiple_of(2) {
        return Err(format!(
            "--heads: {heads} makes heads {width} wide; rotary positions need an even width"
        ));
    }
    Ok(width)
}
