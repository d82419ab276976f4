//! `config.json` of a Qwen3-MoE.

use serde_json::{Value, json};

use crate::decoder_keys::{
    AttentionDefaults, AttentionFields, default_ffn, is_tensor_name, no_biases, no_layer_types,
    no_partial_rotation, no_window, tensor_role, unused_window,
};
use crate::expert_keys::{ExpertFields, RouterTraining, expert_role};
use meshwright_core::rotary::RopeParameters;
use meshwright_store::checkpoint::hf::{HfKeys, KeyResult, TensorRole};
use meshwright_store::family::{ConfigKeys, LoadBalancing, SizeFlag};

/// Weight of the load-balancing loss of a new model, and of a file without the key.
const BALANCE: f64 = 0.001;

/// The sizes and constants of a Qwen3-MoE (Qwen Team, "Qwen3 Technical Report", 2025).
#[derive(Debug, Clone, PartialEq)]
pub struct MoeDecoderConfig {
    /// `hidden_size`: width of the residual stream.
    pub hidden: usize,
    /// `moe_intermediate_size`: width of the feed-forward of each expert.
    pub ffn: usize,
    /// `intermediate_size`: width of the feed-forward of dense layers. There are none.
    pub dense_ffn: usize,
    /// `num_hidden_layers`: transformer blocks.
    pub layers: usize,
    /// `num_attention_heads`: query heads.
    pub heads: usize,
    /// `num_key_value_heads`: key and value heads.
    pub kv_heads: usize,
    /// `head_dim`: width of one head.
    pub head_dim: usize,
    /// `num_experts`: experts of each block.
    pub experts: usize,
    /// `num_experts_per_tok`: experts that each token chooses.
    pub top_k: usize,
    /// `norm_topk_prob`: true if the weights of a token's choices sum to 1.
    pub normalize: bool,
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
impl Default for MoeDecoderConfig {
    fn default() -> MoeDecoderConfig {
        MoeDecoderConfig {
            hidden: 1,
            ffn: 1,
            dense_ffn: 1,
            layers: 1,
            heads: 1,
            kv_heads: 1,
            head_dim: 1,
            experts: 1,
            top_k: 1,
            normalize: false,
            vocab: 1,
            norm_eps: 1e-6,
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

impl ConfigKeys for MoeDecoderConfig {
    const MODEL_TYPES: &'static [&'static str] = &["qwen3_moe"];

    fn architecture(&self) -> Option<&'static str> {
        Some("Qwen3MoeForCausalLM")
    }

    fn keys(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        // Whether a program adds the load-balancing loss; here `--balance` says it.
        keys.ignore(&["output_router_logits"]);
        keys.only("hidden_act", &["silu"])?;
        no_biases(keys, &["attention_bias"])?;
        keys.no_rate("attention_dropout")?;
        windows(keys)?;
        dense_layers(keys)?;
        keys.size(SizeFlag::HIDDEN, "hidden_size", &mut self.hidden)?;
        let of_new = default_ffn(self.hidden);
        let ffn = if keys.is_new() { of_new } else { 768 };
        keys.size_or(SizeFlag::FFN, "moe_intermediate_size", &mut self.ffn, ffn)?;
        let dense_ffn = if keys.is_new() { self.ffn } else { 6144 };
        keys.count("intermediate_size", &mut self.dense_ffn, dense_ffn)?;
        keys.size(SizeFlag::LAYERS, "num_hidden_layers", &mut self.layers)?;
        let (heads, kv_heads) = (&mut self.heads, &mut self.kv_heads);
        let fields = AttentionFields { heads, kv_heads, head_dim: &mut self.head_dim };
        let absent = AttentionDefaults { heads: None, kv_heads: Some(4), head_dim: None };
        fields.keys(keys, self.hidden, absent)?;
        keys.list(&["num_local_experts"]);
        // Older versions of `transformers` write `num_experts`, newer ones the other name; exports may have both.
        let has_other = |settings: &meshwright_store::checkpoint::hf::HfSettings<'_>| {
            settings.get("num_experts").is_none() && settings.get("num_local_experts").is_some()
        };
        let key = match keys.settings() {
            Some(settings) if has_other(settings) => "num_local_experts",
            _ => "num_experts",
        };
        let fields = ExpertFields { key, experts: &mut self.experts, top_k: &mut self.top_k };
        fields.keys(keys, [128, 8])?;
        let other = keys.settings().map(|settings| settings.count("num_local_experts"));
        let (other, experts) = (other.transpose()?.flatten(), self.experts);
        keys.require(other.is_none_or(|other| other == experts), || {
            let other = other.unwrap_or(experts);
            format!(
                "num_local_experts is {other}, but num_experts is {experts}; leave one of them out"
            )
        })?;
        let normalize = keys.is_new();
        keys.switch("norm_topk_prob", &mut self.normalize, normalize)?;
        keys.size(SizeFlag::VOCAB, "vocab_size", &mut self.vocab)?;
        keys.number("rms_norm_eps", &mut self.norm_eps, 1e-6)?;
        keys.tied(&mut self.tied, false)?;
        keys.max_positions(&mut self.max_positions, 32_768)?;
        keys.rope(&mut self.rope, 10_000.0, self.head_dim, self.max_positions)?;
        no_partial_rotation(keys, &self.rope)?;
        let of_new = RouterTraining { loss: BALANCE, ..RouterTraining::default() };
        self.router.keys(keys, BALANCE, of_new)?;
        keys.padding(&mut self.padding, self.vocab, None)?;
        keys.token("bos_token_id", &mut self.bos)?;
        keys.token("eos_token_id", &mut self.eos)
    }

    fn role_of<'a>(&self, stored: &'a str) -> TensorRole<'a> {
        expert_role(tensor_role(stored, self.tied, &self.rope, self.head_dim))
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

/// Refuses windows, which a file may state without using them.
fn windows(keys: &mut HfKeys<'_>) -> KeyResult {
    keys.list(&["use_sliding_window"]);
    let is_used = keys.settings().map(|keys| keys.switch("use_sliding_window")).transpose()?;
    unused_window(keys)?;
    if is_used.flatten() == Some(true) {
        no_window(keys)?;
    }
    no_layer_types(keys)
}

/// Refuses layers without a mixture.
fn dense_layers(keys: &mut HfKeys<'_>) -> KeyResult {
    keys.write("decoder_sparse_step", 1);
    keys.write("mlp_only_layers", json!([]));
    let Some(settings) = keys.settings() else { return Ok(()) };
    let step = settings.count("decoder_sparse_step")?.unwrap_or(1);
    keys.require(step == 1, || {
        format!("decoder_sparse_step is {step}; only models with a mixture in each layer (1) are supported")
    })?;
    let dense = settings.get("mlp_only_layers");
    let is_empty = dense.is_none_or(|layers| layers.as_array().is_some_and(Vec::is_empty));
    keys.require(is_empty, || {
        let dense = dense.unwrap_or(&Value::Null);
        format!("mlp_only_layers is {dense}; only models with a mixture in each layer ([]) are supported")
    })
}
