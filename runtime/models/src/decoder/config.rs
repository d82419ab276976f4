//! `config.json` of a decoder like Llama.

use serde_json::Value;

use crate::decoder_keys::{
    AttentionFields, default_ffn, is_tensor_name, no_partial_rotation, tensor_role, windows_of,
};
use meshwright_core::rotary::RopeParameters;
use meshwright_store::checkpoint::hf::{HfKeys, KeyResult, TensorRole};
use meshwright_store::family::{ConfigKeys, SizeFlag};
use meshwright_store::state_dict::HfName;

use super::rows::{DecoderRow, MODEL_TYPES, ROWS};

/// The sizes and constants of a model of one of the families of [`Decoder`](super::Decoder).
#[derive(Debug, Clone, PartialEq)]
pub struct DecoderConfig {
    /// The family, and what distinguishes it from others.
    pub row: &'static DecoderRow,
    /// `hidden_size`: width of the residual stream.
    pub hidden: usize,
    /// `intermediate_size`: width of the feed-forward.
    pub ffn: usize,
    /// `num_hidden_layers`: transformer blocks.
    pub layers: usize,
    /// `num_attention_heads`: query heads.
    pub heads: usize,
    /// `num_key_value_heads`: key and value heads.
    pub kv_heads: usize,
    /// `head_dim`: width of one head.
    pub head_dim: usize,
    /// `vocab_size`: number of token ids.
    pub vocab: usize,
    /// `rms_norm_eps`: added to the mean square in RMSNorm.
    pub norm_eps: f64,
    /// `rope_parameters`: rotary frequencies.
    pub rope: RopeParameters,
    /// Layers that rotate queries and keys; empty if all do.
    pub rotates: Vec<bool>,
    /// `sliding_window`: positions that a layer which slides attends to, its own included.
    pub window: Option<usize>,
    /// `layer_types`: which layers slide, if there is a window. Repeated over the layers.
    pub slides: Vec<bool>,
    /// Biases of queries, keys and values.
    pub qkv_bias: bool,
    /// Bias of the output of the attention.
    pub output_bias: bool,
    /// `mlp_bias`: biases of the feed-forward.
    pub mlp_bias: bool,
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

/// A Llama without sizes.
impl Default for DecoderConfig {
    fn default() -> DecoderConfig {
        DecoderConfig {
            row: &ROWS[0],
            hidden: 1,
            ffn: 1,
            layers: 1,
            heads: 1,
            kv_heads: 1,
            head_dim: 1,
            vocab: 1,
            norm_eps: 1e-5,
            rope: RopeParameters::default(),
            rotates: Vec::new(),
            window: None,
            slides: Vec::new(),
            qkv_bias: false,
            output_bias: false,
            mlp_bias: false,
            tied: false,
            max_positions: 1,
            padding: None,
            bos: Value::Null,
            eos: Value::Null,
        }
    }
}

impl DecoderConfig {
    /// Returns the names of the tensors of the family.
    pub fn hf_names(&self) -> Vec<HfName> {
        self.row.names.concat()
    }

    /// Returns the windows of layers, which repeat; none if no layer has one.
    pub fn windows(&self) -> Vec<Option<usize>> {
        windows_of(self.window, &self.slides)
    }

    /// Returns the rotary parameters of each layer; none if all have the same.
    pub fn ropes(&self) -> Vec<Option<RopeParameters>> {
        self.rotates.iter().map(|rotates| rotates.then(|| self.rope.clone())).collect()
    }
}

impl ConfigKeys for DecoderConfig {
    const MODEL_TYPES: &'static [&'static str] = &MODEL_TYPES;

    fn new_of(model_type: &'static str) -> DecoderConfig {
        let row = ROWS.iter().find(|row| row.model_type == model_type).unwrap_or(&ROWS[0]);
        DecoderConfig { row, ..DecoderConfig::default() }
    }

    fn family(&self) -> &'static str {
        self.row.model_type
    }

    fn architecture(&self) -> Option<&'static str> {
        Some(self.row.architecture)
    }

    fn keys(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        let row = self.row;
        // The slices in which linear layers were computed when the model was made, and marks of programs that wrote the
        // file.
        keys.ignore(&["pretraining_tp", "is_llama_config", "unsloth_fixed", "max_sequence_length"]);
        keys.only("hidden_act", &["silu"])?;
        for rate in row.rates {
            keys.no_rate(rate)?;
        }
        keys.size(SizeFlag::HIDDEN, "hidden_size", &mut self.hidden)?;
        let ffn = default_ffn(self.hidden);
        keys.size_or_new(SizeFlag::FFN, "intermediate_size", &mut self.ffn, ffn)?;
        keys.size(SizeFlag::LAYERS, "num_hidden_layers", &mut self.layers)?;
        let (heads, kv_heads) = (&mut self.heads, &mut self.kv_heads);
        let fields = AttentionFields { heads, kv_heads, head_dim: &mut self.head_dim };
        fields.keys(keys, self.hidden, row.attention)?;
        keys.size(SizeFlag::VOCAB, "vocab_size", &mut self.vocab)?;
        let eps = if keys.is_new() { 1e-5 } else { row.norm_eps };
        keys.number("rms_norm_eps", &mut self.norm_eps, eps)?;
        self.biases(keys)?;
        self.rotation_keys(keys)?;
        self.window_keys(keys)?;
        keys.tied(&mut self.tied, row.tied)?;
        keys.max_positions(&mut self.max_positions, row.max_positions)?;
        keys.rope(&mut self.rope, row.theta, self.head_dim, self.max_positions)?;
        if !row.rotates_partly {
            no_partial_rotation(keys, &self.rope)?;
        }
        self.require_original_positions(keys)?;
        keys.padding(&mut self.padding, self.vocab, row.padding)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::SIZES;
    use meshwright_store::family::{Family, ModelSizes};

    #[test]
    fn omitted_sizes_have_the_ratios_of_a_llama() {
        let of_sizes = |sizes| DecoderConfig::new_model("llama", &sizes, 16).unwrap();
        let llama = of_sizes(SIZES);
        assert_eq!((llama.kv_heads, llama.head_dim, llama.ffn, llama.tied), (4, 6, 64, false));
        assert_eq!(llama.outline().longest, None);
        assert_eq!(of_sizes(ModelSizes { kv_heads: Some(2), ..SIZES }).kv_heads, 2);
    }

    #[test]
    fn odd_head_width_is_refused_by_flag() {
        let odd = ModelSizes { hidden: 12, heads: 4, ..SIZES };
        let text = DecoderConfig::new_model("llama", &odd, 16).unwrap_err();
        assert_eq!(text, "--heads: 4 makes heads 3 wide; rotary positions need an even width");
    }
}
