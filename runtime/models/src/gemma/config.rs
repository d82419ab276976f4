//! `config.json` of Gemma 2 and 3 models.

use serde_json::Value;

use super::layers::period_of;
use super::rope::LOCAL_THETA;
use meshwright_core::rotary::RopeParameters;

/// The kind of a Gemma, by the `model_type` of its folders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GemmaKind {
    /// `gemma2`: soft caps of scores and logits.
    Gemma2,
    /// `gemma3_text`: norms of queries and keys, and other rotary frequencies in layers with a window.
    Gemma3Text,
    /// `gemma3`: a `gemma3_text` whose keys are in `text_config`, and whose tensors have names that begin with
    /// `language_model.`. Vision towers are not supported.
    Gemma3,
}

/// The sizes and constants of a Gemma 2 ([Gemma Team 2024](https://arxiv.org/abs/2408.00118)) or of the text model of a
/// Gemma 3 ([Gemma Team 2025](https://arxiv.org/abs/2503.19786)). All keys have defaults, which published folders rely
/// on; here the default of a Gemma 2 comes first.
#[derive(Debug, Clone, PartialEq)]
pub struct GemmaConfig {
    /// `model_type`.
    pub kind: GemmaKind,
    /// `hidden_size`: width of the residual stream; by default 2304.
    pub hidden: usize,
    /// `intermediate_size`: width of the feed-forward; by default 9216.
    pub ffn: usize,
    /// `num_hidden_layers`: transformer blocks; by default 26.
    pub layers: usize,
    /// `num_attention_heads`: query heads; by default 8.
    pub heads: usize,
    /// `num_key_value_heads`: key and value heads; by default 4.
    pub kv_heads: usize,
    /// `head_dim`: width of one head; by default 256.
    pub head_dim: usize,
    /// `vocab_size`: number of token ids; by default 256,000 or 262,208.
    pub vocab: usize,
    /// `rms_norm_eps`: added to the mean square in RMSNorm; by default 1e-6.
    pub norm_eps: f64,
    /// `query_pre_attn_scalar`: scores are divided by its square root; by default 256.
    pub query_scalar: f64,
    /// `attn_logit_softcapping`: soft cap of scores; by default 50, or none. `transformers` does not apply it in a
    /// Gemma 3, and neither does this library.
    pub attention_cap: Option<f64>,
    /// `final_logit_softcapping`: soft cap of logits; by default 30, or none.
    pub logit_cap: Option<f64>,
    /// `sliding_window`: the last positions that layers with a window see, up to their own; by default 4096.
    pub window: Option<usize>,
    /// `layer_types`: true for each layer with a window. By default each second layer of a Gemma 2 has one, beginning
    /// with the first, and in a Gemma 3 all but each sixth one, or each `sliding_window_pattern`-th.
    pub slides: Vec<bool>,
    /// `rope_parameters`: rotary frequencies; in a Gemma 3 of layers without a window, with a base of
    /// 1e6.
    pub rope: RopeParameters,
    /// Rotary frequencies of the layers of a Gemma 3 with a window, by default with a base of 1e4.
    pub local_rope: RopeParameters,
    /// `attention_bias`: biases of queries, keys, values and the output of attentions.
    pub biases: bool,
    /// `tie_word_embeddings`: one weight for embedding and head; by default true.
    pub tied: bool,
    /// `max_position_embeddings`: the longest sequence that the model was made for.
    pub max_positions: usize,
    /// `pad_token_id`: the row of the embedding that look-ups do not train; by default 0.
    pub padding: Option<usize>,
    /// `bos_token_id`, as in the file.
    pub bos: Value,
    /// `eos_token_id`, as in the file: one id or several.
    pub eos: Value,
}

impl Default for GemmaConfig {
    fn default() -> GemmaConfig {
        GemmaConfig {
            kind: GemmaKind::Gemma2,
            hidden: 2304,
            ffn: 9216,
            layers: 26,
            heads: 8,
            kv_heads: 4,
            head_dim: 256,
            vocab: 256_000,
            norm_eps: 1e-6,
            query_scalar: 256.0,
            attention_cap: Some(50.0),
            logit_cap: Some(30.0),
            window: Some(4096),
            slides: (0..26).map(|layer| layer % 2 == 0).collect(),
            rope: RopeParameters::default(),
            local_rope: RopeParameters::with_theta(LOCAL_THETA),
            biases: false,
            tied: true,
            max_positions: 8192,
            padding: Some(0),
            bos: Value::Null,
            eos: Value::Null,
        }
    }
}

impl GemmaConfig {
    /// Returns true for a Gemma 3, whose queries and keys have norms, and whose layers have rotary frequencies of two
    /// kinds.
    pub fn is_third(&self) -> bool {
        self.kind != GemmaKind::Gemma2
    }

    /// Returns windows and rotary parameters of the layers, which repeat them.
    pub(crate) fn of_layers(&self) -> (Vec<Option<usize>>, Vec<Option<RopeParameters>>) {
        let period = period_of(&self.slides).iter();
        let rope = |slides: &bool| match slides {
            true if self.is_third() => self.local_rope.clone(),
            _ => self.rope.clone(),
        };
        period.map(|slides| (self.window.filter(|_| *slides), Some(rope(slides)))).unzip()
    }
}
