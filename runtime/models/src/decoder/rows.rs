//! The families of the decoder: what distinguishes them.

use meshwright_store::state_dict::HfName;

use super::names::{BLOCK, ENDS, FUSED, GATED, MLP_BIASES, OUTPUT_BIAS, QK_NORMS, QKV, QKV_BIASES};
use crate::decoder_keys::AttentionDefaults;

/// A family of decoders. `transformers` has these values for a `config.json` without the key.
#[derive(Debug, PartialEq)]
pub struct DecoderRow {
    /// `model_type` of its folders.
    pub model_type: &'static str,
    /// The class of `transformers` that loads it.
    pub architecture: &'static str,
    /// Sizes of the attention.
    pub attention: AttentionDefaults,
    /// `rms_norm_eps`.
    pub norm_eps: f64,
    /// Base of rotary frequencies.
    pub theta: f64,
    /// `max_position_embeddings`.
    pub max_positions: usize,
    /// `tie_word_embeddings`.
    pub tied: bool,
    /// `pad_token_id`.
    pub padding: Option<usize>,
    /// The biases that it may have.
    pub biases: Biases,
    /// The windows that it may have.
    pub windows: Windows,
    /// True if queries and keys have norms.
    pub qk_norm: bool,
    /// True if some layers do not rotate queries and keys.
    pub skips_rope: bool,
    /// True if a part of each head may be left unrotated.
    pub rotates_partly: bool,
    /// Rates of dropout, which have to be 0.
    pub rates: &'static [&'static str],
    /// The names of its tensors.
    pub names: &'static [&'static [HfName]],
}

/// Biases of linear layers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Biases {
    /// None.
    None,
    /// Queries, keys and values always have biases.
    Qkv,
    /// The attention has biases if `attention_bias` is true.
    OfAttention,
    /// The attention has biases if `attention_bias` is true, and the feed-forward if `mlp_bias` is true.
    OfBoth,
}

/// Windows of attention.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Windows {
    /// None.
    None,
    /// `sliding_window` in all layers.
    AllLayers {
        /// The window of a file without the key.
        absent: Option<usize>,
    },
    /// `sliding_window` in the layers of `layer_types`, if `use_sliding_window` is true.
    OfLayers {
        /// The window of a file without the key.
        absent: Option<usize>,
        /// `max_window_layers` of a file without the key: layers before the first one that slides. `None` if the layers
        /// without rotary positions slide.
        full: Option<usize>,
    },
}

const LLAMA: DecoderRow = DecoderRow {
    model_type: "llama",
    architecture: "LlamaForCausalLM",
    attention: AttentionDefaults { heads: None, kv_heads: None, head_dim: None },
    norm_eps: 1e-6,
    theta: 10_000.0,
    max_positions: 2048,
    tied: false,
    padding: None,
    biases: Biases::OfBoth,
    windows: Windows::None,
    qk_norm: false,
    skips_rope: false,
    rotates_partly: false,
    rates: &["attention_dropout"],
    names: &[ENDS, BLOCK, QKV, GATED, QKV_BIASES, OUTPUT_BIAS, MLP_BIASES],
};

/// The families that [`Decoder`](super::Decoder) serves. The first one is that of a new model by default.
pub const ROWS: [DecoderRow; 6] = [
    LLAMA,
    DecoderRow {
        model_type: "mistral",
        architecture: "MistralForCausalLM",
        attention: AttentionDefaults { heads: None, kv_heads: Some(8), head_dim: None },
        max_positions: 131_072,
        biases: Biases::None,
        windows: Windows::AllLayers { absent: Some(4096) },
        names: &[ENDS, BLOCK, QKV, GATED],
        ..LLAMA
    },
    DecoderRow {
        model_type: "qwen2",
        architecture: "Qwen2ForCausalLM",
        attention: AttentionDefaults { heads: None, kv_heads: Some(32), head_dim: None },
        max_positions: 32_768,
        biases: Biases::Qkv,
        windows: Windows::OfLayers { absent: Some(4096), full: Some(28) },
        names: &[ENDS, BLOCK, QKV, GATED, QKV_BIASES],
        ..LLAMA
    },
    DecoderRow {
        model_type: "qwen3",
        architecture: "Qwen3ForCausalLM",
        attention: AttentionDefaults { heads: None, kv_heads: Some(32), head_dim: Some(128) },
        max_positions: 32_768,
        biases: Biases::OfAttention,
        windows: Windows::OfLayers { absent: Some(4096), full: Some(28) },
        qk_norm: true,
        names: &[ENDS, BLOCK, QKV, GATED, QKV_BIASES, OUTPUT_BIAS, QK_NORMS],
        ..LLAMA
    },
    DecoderRow {
        model_type: "phi3",
        architecture: "Phi3ForCausalLM",
        rotates_partly: true,
        norm_eps: 1e-5,
        max_positions: 4096,
        padding: Some(32_000),
        biases: Biases::None,
        windows: Windows::AllLayers { absent: None },
        rates: &["attention_dropout", "resid_pdrop", "embd_pdrop"],
        names: &[ENDS, BLOCK, FUSED],
        ..LLAMA
    },
    DecoderRow {
        model_type: "smollm3",
        architecture: "SmolLM3ForCausalLM",
        attention: AttentionDefaults { heads: None, kv_heads: Some(4), head_dim: None },
        theta: 2_000_000.0,
        max_positions: 32_768,
        tied: true,
        padding: Some(128_004),
        windows: Windows::OfLayers { absent: None, full: None },
        skips_rope: true,
        ..LLAMA
    },
];

/// The `model_type` of each row.
pub const MODEL_TYPES: [&str; ROWS.len()] = {
    let mut types = [""; ROWS.len()];
    let mut index = 0;
    while index < ROWS.len() {
        types[index] = ROWS[index].model_type;
        index += 1;
    }
    types
};
