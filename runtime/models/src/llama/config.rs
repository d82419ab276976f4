//! `config.json` of a Llama model.

use serde_json::{Value, json};

use crate::decoder::{
    DecoderSizes, default_ffn, exported_positions, extend_positions, head_width, is_tensor_name,
    read_padding, refuse_biases, refuse_layer_types, refuse_rate, refuse_window, tensor_role,
};
use meshwright_core::rotary::RopeParameters;
use meshwright_store::checkpoint::hf::{HfConfig, HfSettings, TensorRole, read_rope, write_rope};
use meshwright_store::family::{Family, ModelSizes, Outline};

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
    /// `pad_token_id`: the row of the embedding that look-ups do not train.
    pub padding: Option<usize>,
    /// `bos_token_id`, as in the file.
    pub bos: Value,
    /// `eos_token_id`, as in the file: one id or several.
    pub eos: Value,
}

impl HfConfig for LlamaConfig {
    const MODEL_TYPE: &'static str = "llama";

    fn from_settings(keys: &HfSettings<'_>) -> Result<LlamaConfig, String> {
        refuse_unsupported(keys)?;
        let DecoderSizes { hidden, heads, kv_heads, head_dim } = DecoderSizes::read(keys, None)?;
        let vocab = keys.required("vocab_size")?;
        let max_positions = keys.count("max_position_embeddings")?.unwrap_or(2048);
        Ok(LlamaConfig {
            hidden,
            ffn: keys.required("intermediate_size")?,
            layers: keys.required("num_hidden_layers")?,
            heads,
            kv_heads,
            head_dim,
            vocab,
            norm_eps: keys.number("rms_norm_eps")?.unwrap_or(1e-6),
            rope: read_rope(keys, 10_000.0, head_dim, max_positions)?,
            tied: keys.switch("tie_word_embeddings")?.unwrap_or(false),
            max_positions,
            padding: read_padding(keys, vocab)?,
            bos: keys.get("bos_token_id").cloned().unwrap_or(Value::Null),
            eos: keys.get("eos_token_id").cloned().unwrap_or(Value::Null),
        })
    }

    fn to_json(&self) -> Value {
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
            "max_position_embeddings": exported_positions(&self.rope, self.max_positions),
            "pad_token_id": self.padding,
            "bos_token_id": self.bos,
            "eos_token_id": self.eos,
            "hidden_act": "silu",
            "attention_bias": false,
            "mlp_bias": false,
            "torch_dtype": "float32",
        });
        if let Value::Object(config) = &mut config {
            write_rope(&self.rope, config);
        }
        config
    }

    fn layers(&self) -> (&'static str, usize) {
        ("num_hidden_layers", self.layers)
    }

    fn tensor_role<'a>(&self, stored: &'a str) -> TensorRole<'a> {
        tensor_role(stored, self.tied, &self.rope, self.head_dim)
    }

    fn is_tensor_name(&self, stored: &str) -> bool {
        is_tensor_name(stored)
    }

    fn untie(&mut self) -> bool {
        self.tied = false;
        true
    }
}

impl Family for LlamaConfig {
    fn of_sizes(sizes: &ModelSizes, seq: usize) -> Result<LlamaConfig, String> {
        let ModelSizes { hidden, layers, heads, kv_heads, ffn, vocab, tied, .. } = *sizes;
        Ok(LlamaConfig {
            hidden,
            ffn: ffn.unwrap_or_else(|| default_ffn(hidden)),
            layers,
            heads,
            kv_heads: kv_heads.unwrap_or(heads),
            head_dim: head_width(hidden, heads)?,
            vocab,
            norm_eps: 1e-5,
            rope: RopeParameters::default(),
            tied,
            max_positions: seq,
            padding: None,
            bos: serde_json::Value::Null,
            eos: serde_json::Value::Null,
        })
    }

    fn extend_positions(&mut self, seq: usize) -> Option<String> {
        extend_positions(&mut self.max_positions, &self.rope, seq)
    }

    fn outline(&self) -> Outline {
        Outline {
            layers: self.layers,
            hidden: self.hidden,
            heads: self.heads,
            kv_heads: self.kv_heads,
            vocab: self.vocab,
            longest: None,
        }
    }
}

/// Refuses settings of other Llama-like models that are not implemented here. Ignoring them would change the results.
fn refuse_unsupported(keys: &HfSettings<'_>) -> Result<(), String> {
    // The slices in which linear layers were computed when the model was made, and marks of programs that wrote the
    // file.
    keys.ignore(&["pretraining_tp", "is_llama_config", "unsloth_fixed", "max_sequence_length"]);
    keys.expect_text("hidden_act", &["silu"])?;
    refuse_biases(keys, &["attention_bias", "mlp_bias"])?;
    refuse_windows(keys)?;
    refuse_rate(keys, "attention_dropout")
}

/// Refuses sliding windows, which Mistral has, and Qwen2 if it switches them on.
fn refuse_windows(keys: &HfSettings<'_>) -> Result<(), String> {
    let is_used = keys.switch("use_sliding_window")?;
    keys.ignore(&["sliding_window", "max_window_layers"]);
    if is_used != Some(false) {
        refuse_window(keys)?;
    }
    if is_used == Some(true) {
        return Err(
            "use_sliding_window is true; only models whose attention has no window are supported"
                .into(),
        );
    }
    refuse_layer_types(keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::SIZES;

    #[test]
    fn omitted_sizes_have_the_ratios_of_a_llama() {
        let llama = LlamaConfig::of_sizes(&SIZES, 16).unwrap();
        assert_eq!((llama.kv_heads, llama.head_dim, llama.ffn, llama.tied), (4, 6, 64, false));
        assert_eq!(llama.outline().longest, None);
        let grouped = ModelSizes { kv_heads: Some(2), ..SIZES };
        assert_eq!(LlamaConfig::of_sizes(&grouped, 16).unwrap().kv_heads, 2);
    }

    #[test]
    fn odd_head_width_is_refused_by_flag() {
        let odd = ModelSizes { hidden: 12, heads: 4, ..SIZES };
        let text = LlamaConfig::of_sizes(&odd, 16).unwrap_err();
        assert_eq!(text, "--heads: 4 makes heads 3 wide; rotary positions need an even width");
    }
}
