//! `config.json` of a gpt-oss.

use serde_json::Value;

use crate::decoder_keys::{
    AttentionDefaults, AttentionFields, is_tensor_name, layer_types, no_partial_rotation,
    require_window, tensor_role, windows_of,
};
use crate::expert_keys::{ExpertFields, RouterTraining};
use meshwright_core::rotary::{RopeParameters, RopeScaling, YarnScaling};
use meshwright_store::checkpoint::hf::{HfKeys, KeyResult, TensorRole};
use meshwright_store::family::{ConfigKeys, LoadBalancing, SizeFlag};

/// The sizes and constants of a gpt-oss (OpenAI, arXiv 2508.10925, 2025).
#[derive(Debug, Clone, PartialEq)]
pub struct GptOssConfig {
    /// `hidden_size`: width of the residual stream.
    pub hidden: usize,
    /// `intermediate_size`: width of the feed-forward of each expert.
    pub ffn: usize,
    /// `num_hidden_layers`: transformer blocks.
    pub layers: usize,
    /// `num_attention_heads`: query heads.
    pub heads: usize,
    /// `num_key_value_heads`: key and value heads.
    pub kv_heads: usize,
    /// `head_dim`: width of one head.
    pub head_dim: usize,
    /// `attention_bias`: biases of the attention's linear layers.
    pub biases: bool,
    /// `sliding_window`: positions that a layer which slides attends to, its own included.
    pub window: Option<usize>,
    /// `layer_types`: which layers slide.
    pub slides: Vec<bool>,
    /// `num_local_experts`: experts of each block.
    pub experts: usize,
    /// `num_experts_per_tok`: experts that each token chooses.
    pub top_k: usize,
    /// `swiglu_alpha`: factor inside of the sigmoid of the gates.
    pub alpha: f64,
    /// `swiglu_limit`: largest gate, and largest absolute value that it is multiplied by.
    pub limit: f64,
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
    /// Training of the routers.
    pub router: RouterTraining,
    /// `pad_token_id`: the row of the embedding that look-ups do not train.
    pub padding: Option<usize>,
    /// `bos_token_id`, as in the file.
    pub bos: Value,
    /// `eos_token_id`, as in the file: one id or several.
    pub eos: Value,
}

/// A model without sizes.
impl Default for GptOssConfig {
    fn default() -> GptOssConfig {
        GptOssConfig {
            hidden: 1,
            ffn: 1,
            layers: 1,
            heads: 1,
            kv_heads: 1,
            head_dim: 2,
            biases: true,
            window: None,
            slides: Vec::new(),
            experts: 1,
            top_k: 1,
            alpha: 1.702,
            limit: 7.0,
            vocab: 1,
            norm_eps: 1e-5,
            rope: RopeParameters::default(),
            tied: false,
            max_positions: 1,
            router: RouterTraining::default(),
            padding: None,
            bos: Value::Null,
            eos: Value::Null,
        }
    }
}

impl GptOssConfig {
    /// Base of rotary frequencies.
    const ROPE_THETA: f64 = 150_000.0;

    /// Returns the window of each layer; none if no layer has one.
    pub fn windows(&self) -> Vec<Option<usize>> {
        windows_of(self.window, &self.slides)
    }

    /// Names the keys of windows and rotary positions.
    fn position_keys(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        let default = if keys.is_new() { None } else { Some(128) };
        keys.optional_count("sliding_window", &mut self.window, default)?;
        layer_types(keys, &mut self.slides, self.layers, |layer| layer.is_multiple_of(2))?;
        if keys.is_new() {
            self.slides = vec![false; self.layers];
        }
        require_window(keys, self.window, &self.slides)?;
        keys.max_positions(&mut self.max_positions, 131_072)?;
        let (theta, head_dim) = (GptOssConfig::ROPE_THETA, self.head_dim);
        keys.rope(&mut self.rope, theta, head_dim, self.max_positions)?;
        no_partial_rotation(keys, &self.rope)?;
        let is_absent = keys.settings().is_some_and(|settings| {
            ["rope_parameters", "rope_scaling"].iter().all(|key| settings.get(key).is_none())
        });
        if is_absent {
            let scaling = YarnScaling { truncate: false, ..YarnScaling::new(32.0, 4096) };
            self.rope.scaling = RopeScaling::Yarn(scaling);
        }
        Ok(())
    }
}

impl ConfigKeys for GptOssConfig {
    const MODEL_TYPES: &'static [&'static str] = &["gpt_oss"];

    fn architecture(&self) -> Option<&'static str> {
        Some("GptOssForCausalLM")
    }

    fn keys(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        // Whether a program adds the load-balancing loss; here `--balance` says it. The length of the first training.
        keys.ignore(&["output_router_logits", "initial_context_length"]);
        keys.only("hidden_act", &["silu"])?;
        keys.no_rate("attention_dropout")?;
        keys.number("swiglu_alpha", &mut self.alpha, 1.702)?;
        keys.number("swiglu_limit", &mut self.limit, 7.0)?;
        keys.switch("attention_bias", &mut self.biases, true)?;
        keys.size(SizeFlag::HIDDEN, "hidden_size", &mut self.hidden)?;
        keys.size_or_new(SizeFlag::FFN, "intermediate_size", &mut self.ffn, self.hidden)?;
        keys.size(SizeFlag::LAYERS, "num_hidden_layers", &mut self.layers)?;
        let (heads, kv_heads) = (&mut self.heads, &mut self.kv_heads);
        let fields = AttentionFields { heads, kv_heads, head_dim: &mut self.head_dim };
        let absent = AttentionDefaults { heads: None, kv_heads: Some(8), head_dim: Some(64) };
        fields.keys(keys, self.hidden, absent)?;
        let key = "num_local_experts";
        let fields = ExpertFields { key, experts: &mut self.experts, top_k: &mut self.top_k };
        fields.keys(keys, [128, 4])?;
        // Another name of it in published files.
        let other = keys.settings().map(|settings| settings.count("experts_per_token"));
        let (other, top_k) = (other.transpose()?.flatten(), self.top_k);
        keys.require(other.is_none_or(|other| other == top_k), || {
            let other = other.unwrap_or(top_k);
            format!("experts_per_token is {other}, but num_experts_per_tok is {top_k}; leave one of them out")
        })?;
        keys.size(SizeFlag::VOCAB, "vocab_size", &mut self.vocab)?;
        keys.number("rms_norm_eps", &mut self.norm_eps, 1e-5)?;
        keys.tied(&mut self.tied, false)?;
        self.position_keys(keys)?;
        let of_new = RouterTraining { loss: 0.001, ..RouterTraining::default() };
        self.router.keys(keys, 0.001, of_new)?;
        keys.padding(&mut self.padding, self.vocab, None)?;
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

    fn balance(
        &mut self,
        balance: Option<LoadBalancing>,
        z_loss: Option<f64>,
    ) -> Result<(), String> {
        self.router.set(balance, z_loss, self.family(), false)
    }
}
