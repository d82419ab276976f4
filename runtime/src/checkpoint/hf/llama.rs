//! `config.json` of a Llama model.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::rope::{read_parameters, write_parameters};
use super::{HfConfig, HfSettings};
use crate::rotary::{RopeParameters, RopeScaling};

/// The sizes and constants of a Llama model.
#[derive(Debug, Clone, PartialEq)]
pub struct LlamaConfig {
    /// `hidden_size`: width of the residual stream.
    pub hidden: usize,
    /// `intermediate_size`: width of the feed-forward.
    pub ffn: usize,
    /// `num_hidden_layers`: transformer blocks.
    pub layers: usize,
    /// `num_attention_heads`: query heads.
    pub heads: usize,
    /// `num_key_value_heads`: key and value heads; by default as many as query heads.
    pub kv_heads: usize,
    /// `head_dim`: width of one head; by default `hidden / heads`.
    pub head_dim: usize,
    /// `vocab_size`: number of token ids.
    pub vocab: usize,
    /// `rms_norm_eps`: added to the mean square in RMSNorm.
    pub norm_eps: f64,
    /// `rope_parameters`: rotary frequencies.
    pub rope: RopeParameters,
    /// `tie_word_embeddings`: one weight for embedding and head.
    pub tied: bool,
    /// `max_position_embeddings`: the longest sequence that the model was made for.
    pub max_positions: usize,
    /// `bos_token_id`, as in the file.
    pub bos: Value,
    /// `eos_token_id`, as in the file: one id or several.
    pub eos: Value,
}

impl HfConfig for LlamaConfig {
    const MODEL_TYPE: &'static str = "llama";

    fn from_settings(keys: &HfSettings<'_>) -> Result<LlamaConfig, String> {
        refuse_unsupported(keys)?;
        let (hidden, heads) =
            (keys.required("hidden_size")?, keys.required("num_attention_heads")?);
        let kv_heads = keys.count("num_key_value_heads")?.unwrap_or(heads);
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
        let max_positions = keys.count("max_position_embeddings")?.unwrap_or(2048);
        Ok(LlamaConfig {
            hidden,
            ffn: keys.required("intermediate_size")?,
            layers: keys.required("num_hidden_layers")?,
            heads,
            kv_heads,
            head_dim,
            vocab: keys.required("vocab_size")?,
            norm_eps: keys.number("rms_norm_eps")?.unwrap_or(1e-6),
            rope: read_parameters(keys, head_dim, max_positions)?,
            tied: keys.switch("tie_word_embeddings")?.unwrap_or(false),
            max_positions,
            bos: keys.get("bos_token_id").cloned().unwrap_or(Value::Null),
            eos: keys.get("eos_token_id").cloned().unwrap_or(Value::Null),
        })
    }

    fn to_json(&self) -> Value {
        let max_positions = match self.rope.scaling {
            RopeScaling::Dynamic { trained_positions, .. } => trained_positions,
            _ => self.max_positions,
        };
        let mut config = json!({
            "architectures": ["LlamaForCausalLM"],
            "model_type": LlamaConfig::MODEL_TYPE,
            "hidden_size": self.hidden,
            "intermediate_size": self.ffn,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab,
            "rms_norm_eps": self.norm_eps,
            "tie_word_embeddings": self.tied,
            "max_position_embeddings": max_positions,
            "bos_token_id": self.bos,
            "eos_token_id": self.eos,
            "hidden_act": "silu",
            "attention_bias": false,
            "mlp_bias": false,
            "torch_dtype": "float32",
        });
        if let Value::Object(config) = &mut config {
            write_parameters(&self.rope, config);
        }
        config
    }

    fn layers(&self) -> (&'static str, usize) {
        ("num_hidden_layers", self.layers)
    }

    /// Some folders also store the rotary frequencies, and the head that is tied to the embedding.
    fn tensor_name<'a>(&self, stored: &'a str) -> Option<Cow<'a, str>> {
        let follows =
            stored.ends_with("rotary_emb.inv_freq") || (self.tied && stored == "lm_head.weight");
        (!follows).then_some(Cow::Borrowed(stored))
    }
}

/// Refuses settings of other Llama-like models that are not implemented here. Ignoring them would change the results.
fn refuse_unsupported(keys: &HfSettings<'_>) -> Result<(), String> {
    keys.expect_text("hidden_act", &["silu"])?;
    for key in ["attention_bias", "mlp_bias"] {
        if keys.switch(key)? == Some(true) {
            return Err(format!("{key} is true; only models without biases are supported"));
        }
    }
    refuse_windows(keys)?;
    match keys.number("attention_dropout")? {
        Some(rate) if rate > 0.0 => {
            Err(format!("attention_dropout is {rate}; only 0 is supported"))
        }
        _ => Ok(()),
    }
}

/// Refuses sliding windows, as those of Mistral, and of Qwen2 if it switches them on.
fn refuse_windows(keys: &HfSettings<'_>) -> Result<(), String> {
    let is_used = keys.switch("use_sliding_window")?;
    if let Some(window) = keys.get("sliding_window").filter(|_| is_used != Some(false)) {
        return Err(format!(
            "sliding_window is {window}; only models whose attention has no window are supported"
        ));
    }
    if is_used == Some(true) {
        return Err(
            "use_sliding_window is true; only models whose attention has no window are supported"
                .into(),
        );
    }
    match keys.get("layer_types") {
        Some(Value::Array(types)) if types.iter().all(|kind| *kind == "full_attention") => Ok(()),
        Some(types) => {
            Err(format!("layer_types is {types}; only layers of \"full_attention\" are supported"))
        }
        None => Ok(()),
    }
}
