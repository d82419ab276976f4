//! `config.json` of an OLMo 2 model.

use serde_json::Value;

use crate::decoder_keys::{
    AttentionDefaults, AttentionFields, default_ffn, is_tensor_name, no_partial_rotation,
    tensor_role,
};
use meshwright_core::rotary::RopeParameters;
use meshwright_store::checkpoint::hf::{HfKeys, KeyResult, TensorRole};
use meshwright_store::family::{ConfigKeys, SizeFlag};

/// The sizes and constants of an OLMo 2 model ([OLMo Team 2024](https://arxiv.org/abs/2501.00656)): a Llama with norms
/// after attention and feed-forward rather than before, and norms of queries and keys.
#[derive(Debug, Clone, PartialEq)]
pub struct Olmo2Config {
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
    /// `rms_norm_eps`: added to the mean square in RMSNorm; by default 1e-5.
    pub norm_eps: f64,
    /// `rope_parameters`: rotary frequencies.
    pub rope: RopeParameters,
    /// `attention_bias`: biases of queries, keys, values and the output of attentions.
    pub biases: bool,
    /// `tie_word_embeddings`: one weight for embedding and head; by default false.
    pub tied: bool,
    /// `max_position_embeddings`: the longest sequence that the model was made for; by default 2048.
    pub max_positions: usize,
    /// `pad_token_id`: the row of the embedding that look-ups do not train; by default 1.
    pub padding: Option<usize>,
    /// `bos_token_id`, as in the file.
    pub bos: Value,
    /// `eos_token_id`, as in the file: one id or several.
    pub eos: Value,
}

/// A model without sizes.
impl Default for Olmo2Config {
    fn default() -> Olmo2Config {
        Olmo2Config {
            hidden: 1,
            ffn: 1,
            layers: 1,
            heads: 1,
            kv_heads: 1,
            head_dim: 1,
            vocab: 1,
            norm_eps: 1e-5,
            rope: RopeParameters::default(),
            biases: false,
            tied: false,
            max_positions: 2048,
            padding: None,
            bos: Value::Null,
            eos: Value::Null,
        }
    }
}

impl ConfigKeys for Olmo2Config {
    const MODEL_TYPES: &'static [&'static str] = &["olmo2"];

    fn architecture(&self) -> Option<&'static str> {
        Some("Olmo2ForCausalLM")
    }

    fn keys(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        keys.only("hidden_act", &["silu"])?;
        keys.no_rate("attention_dropout")?;
        keys.size(SizeFlag::HIDDEN, "hidden_size", &mut self.hidden)?;
        let ffn = default_ffn(self.hidden);
        keys.size_or_new(SizeFlag::FFN, "intermediate_size", &mut self.ffn, ffn)?;
        keys.size(SizeFlag::LAYERS, "num_hidden_layers", &mut self.layers)?;
        let (heads, kv_heads) = (&mut self.heads, &mut self.kv_heads);
        let fields = AttentionFields { heads, kv_heads, head_dim: &mut self.head_dim };
        fields.keys(keys, self.hidden, AttentionDefaults::default())?;
        keys.size(SizeFlag::VOCAB, "vocab_size", &mut self.vocab)?;
        keys.number("rms_norm_eps", &mut self.norm_eps, 1e-5)?;
        keys.switch("attention_bias", &mut self.biases, false)?;
        keys.max_positions(&mut self.max_positions, 2048)?;
        keys.rope(&mut self.rope, 10_000.0, self.head_dim, self.max_positions)?;
        no_partial_rotation(keys, &self.rope)?;
        keys.tied(&mut self.tied, false)?;
        keys.padding(&mut self.padding, self.vocab, Some(1))?;
        keys.token("bos_token_id", &mut self.bos)?;
        keys.token("eos_token_id", &mut self.eos)
    }

    fn role_of<'a>(&self, stored: &'a str) -> TensorRole<'a> {
        tensor_role(stored, self.tied, &self.rope, self.head_dim)
    }

    fn is_name(&self, stored: &str) -> bool {
        is_tensor_name(stored)
    }

    fn untie_head(&mut self) -> bool {
        self.tied = false;
        true
    }
}
