//! `config.json` of a DeepSeek-V3.

use serde_json::Value;

use super::keys::{HeadFields, further_layers, published_keys};
use crate::decoder_keys::{
    default_ffn, is_tensor_name, no_biases, no_partial_rotation, tensor_role,
};
use crate::expert_keys::{ExpertFields, RouterTraining, expert_role};
use meshwright_core::nn::layers::ExpertGroups;
use meshwright_core::rotary::{RopeParameters, RopeScaling};
use meshwright_store::checkpoint::hf::{HfKeys, KeyResult, TensorRole};
use meshwright_store::family::{ConfigKeys, LoadBalancing, SizeFlag};

/// Rate of the bias of the choice in a new model (DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 4.2).
const BIAS_RATE: f64 = 0.001;

/// The sizes and constants of a DeepSeek-V3.
#[derive(Debug, Clone, PartialEq)]
pub struct DeepseekConfig {
    /// `hidden_size`: width of the residual stream.
    pub hidden: usize,
    /// `intermediate_size`: width of the dense feed-forwards.
    pub ffn: usize,
    /// `moe_intermediate_size`: width of the feed-forward of each expert.
    pub expert_ffn: usize,
    /// `n_shared_experts`: experts that all tokens use.
    pub shared_experts: usize,
    /// `num_hidden_layers`: transformer blocks.
    pub layers: usize,
    /// `num_nextn_predict_layers`: layers behind them that predict further tokens, which are left out.
    pub further_layers: usize,
    /// `first_k_dense_replace`: layers before the first mixture.
    pub dense_layers: usize,
    /// `num_attention_heads`: attention heads.
    pub heads: usize,
    /// `q_lora_rank`: width of the latent vector of queries, if they have one.
    pub query_latent: Option<usize>,
    /// `kv_lora_rank`: width of the latent vector of keys and values.
    pub latent: usize,
    /// `qk_nope_head_dim`: elements of queries and keys of a head without positions.
    pub plain_dim: usize,
    /// `qk_rope_head_dim`: elements of queries and keys of a head that are rotated.
    pub rotated_dim: usize,
    /// `v_head_dim`: width of the values of a head.
    pub value_dim: usize,
    /// `n_routed_experts`: experts of each mixture.
    pub experts: usize,
    /// `num_experts_per_tok`: experts that each token chooses.
    pub top_k: usize,
    /// `n_group`: groups of experts.
    pub group_count: usize,
    /// `topk_group`: groups that each token chooses from.
    pub best_groups: usize,
    /// `norm_topk_prob`: true if the weights of a token's choices are divided by their sum.
    pub normalize: bool,
    /// `routed_scaling_factor`: factor of the weights of choices.
    pub routed_scale: f64,
    /// `vocab_size`: number of token ids.
    pub vocab: usize,
    /// `rms_norm_eps`: added to the mean square in RMSNorm, except in the norms of latent vectors.
    pub norm_eps: f64,
    /// `rope_parameters`: rotary frequencies.
    pub rope: RopeParameters,
    /// `rope_interleave`: neighbors are rotated together, rather than elements of the two halves.
    pub interleaved: bool,
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
impl Default for DeepseekConfig {
    fn default() -> DeepseekConfig {
        DeepseekConfig {
            hidden: 1,
            ffn: 1,
            expert_ffn: 1,
            shared_experts: 1,
            layers: 1,
            further_layers: 0,
            dense_layers: 0,
            heads: 1,
            query_latent: None,
            latent: 1,
            plain_dim: 1,
            rotated_dim: 2,
            value_dim: 1,
            experts: 2,
            top_k: 1,
            group_count: 1,
            best_groups: 1,
            normalize: true,
            routed_scale: 1.0,
            vocab: 1,
            norm_eps: 1e-6,
            rope: RopeParameters::default(),
            interleaved: true,
            tied: false,
            max_positions: 1,
            router: RouterTraining::default(),
            padding: None,
            bos: Value::Null,
            eos: Value::Null,
        }
    }
}

impl DeepseekConfig {
    /// Returns the kind of each layer.
    pub fn kinds(&self) -> Vec<&'static str> {
        let kind = |layer| if layer < self.dense_layers { "Dense" } else { "Moe" };
        (0..self.layers).map(kind).collect()
    }

    /// Returns true if a layer has a mixture of experts.
    pub fn has_mixtures(&self) -> bool {
        self.dense_layers < self.layers
    }

    /// Returns the groups of experts, if a token does not choose from all of them.
    pub fn groups(&self) -> Option<ExpertGroups> {
        let (count, best) = (self.group_count, self.best_groups);
        (best < count).then_some(ExpertGroups { count, best, top: 2 })
    }

    /// Returns the factor of attention scores: `1 / sqrt(qk_nope_head_dim + qk_rope_head_dim)`, with YaRN times the
    /// square of `0.1 mscale_all_dim ln(factor) + 1`.
    pub fn attention_scale(&self) -> f64 {
        let scale = 1.0 / ((self.plain_dim + self.rotated_dim) as f64).sqrt();
        match self.rope.scaling {
            RopeScaling::Yarn(yarn) if yarn.factor > 1.0 => {
                let of_all = yarn.mscale_all_dim.unwrap_or(0.0);
                scale * (0.1 * of_all * yarn.factor.ln() + 1.0).powi(2)
            }
            _ => scale,
        }
    }

    /// Names the keys of mixtures.
    fn mixture_keys(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        let is_new = keys.is_new();
        let key = "n_routed_experts";
        let fields = ExpertFields { key, experts: &mut self.experts, top_k: &mut self.top_k };
        fields.keys(keys, [256, 8])?;
        // The experts of a token, and the shared one, are as wide as a dense feed-forward.
        let narrow = (self.ffn / (self.top_k + 1)).max(1);
        let expert_ffn = if is_new { narrow } else { 2048 };
        keys.count("moe_intermediate_size", &mut self.expert_ffn, expert_ffn)?;
        keys.count("n_shared_experts", &mut self.shared_experts, 1)?;
        keys.count("n_group", &mut self.group_count, if is_new { 1 } else { 8 })?;
        keys.count("topk_group", &mut self.best_groups, if is_new { 1 } else { 4 })?;
        let (count, best) = (self.group_count, self.best_groups);
        // transformers scores one group, too, by its two best experts.
        let groups = ExpertGroups { count, best, top: 2 };
        if let Some(mistake) = groups.mistake(self.experts, self.top_k) {
            let reason = || {
                format!(
                    "n_group {count} and topk_group {best} do not fit n_routed_experts {} and num_experts_per_tok {}: \
                     {mistake}",
                    self.experts, self.top_k
                )
            };
            keys.require(is_new && count == 1, reason)?;
        }
        let absent_dense = if is_new { self.layers.min(2) - 1 } else { 3 };
        keys.field("first_k_dense_replace", &mut self.dense_layers, absent_dense, |settings| {
            match settings.get("first_k_dense_replace") {
                // No dense layer.
                Some(value) if value.as_u64() == Some(0) => Ok(0),
                _ => Ok(settings.count("first_k_dense_replace")?.unwrap_or(absent_dense)),
            }
        })?;
        keys.switch("norm_topk_prob", &mut self.normalize, true)?;
        let scale = if is_new { 1.0 } else { 2.5 };
        keys.number("routed_scaling_factor", &mut self.routed_scale, scale)?;
        let of_new = RouterTraining { bias_rate: BIAS_RATE, ..RouterTraining::default() };
        self.router.keys(keys, 0.0, of_new)?;
        self.router.bias_keys(keys)
    }
}

impl ConfigKeys for DeepseekConfig {
    const MODEL_TYPES: &'static [&'static str] = &["deepseek_v3"];

    fn architecture(&self) -> Option<&'static str> {
        Some("DeepseekV3ForCausalLM")
    }

    fn keys(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        published_keys(keys)?;
        further_layers(keys, &mut self.further_layers)?;
        keys.only("hidden_act", &["silu"])?;
        no_biases(keys, &["attention_bias"])?;
        keys.no_rate("attention_dropout")?;
        keys.size(SizeFlag::HIDDEN, "hidden_size", &mut self.hidden)?;
        let ffn = default_ffn(self.hidden);
        keys.size_or_new(SizeFlag::FFN, "intermediate_size", &mut self.ffn, ffn)?;
        keys.size(SizeFlag::LAYERS, "num_hidden_layers", &mut self.layers)?;
        keys.size(SizeFlag::HEADS, "num_attention_heads", &mut self.heads)?;
        HeadFields {
            hidden: self.hidden,
            heads: self.heads,
            query_latent: &mut self.query_latent,
            latent: &mut self.latent,
            plain_dim: &mut self.plain_dim,
            rotated_dim: &mut self.rotated_dim,
            value_dim: &mut self.value_dim,
        }
        .keys(keys)?;
        self.mixture_keys(keys)?;
        keys.size(SizeFlag::VOCAB, "vocab_size", &mut self.vocab)?;
        keys.number("rms_norm_eps", &mut self.norm_eps, 1e-6)?;
        keys.tied(&mut self.tied, false)?;
        keys.max_positions(&mut self.max_positions, 4096)?;
        keys.rope(&mut self.rope, 10_000.0, self.rotated_dim, self.max_positions)?;
        no_partial_rotation(keys, &self.rope)?;
        keys.switch("rope_interleave", &mut self.interleaved, true)?;
        keys.padding(&mut self.padding, self.vocab, None)?;
        keys.token("bos_token_id", &mut self.bos)?;
        keys.token("eos_token_id", &mut self.eos)
    }

    fn role_of<'a>(&self, stored: &'a str) -> TensorRole<'a> {
        if self.is_beyond_last_layer(stored) {
            return TensorRole::Unused;
        }
        expert_role(tensor_role(stored, self.tied, &self.rope, self.rotated_dim))
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
        self.router.set(balance, z_loss, self.family(), true)
    }
}

impl DeepseekConfig {
    /// Returns true for tensors of modules that predict further tokens, which are stored as layers after the last one.
    fn is_beyond_last_layer(&self, stored: &str) -> bool {
        let name = stored.strip_prefix("model.").unwrap_or(stored);
        let number = name.strip_prefix("layers.").and_then(|rest| rest.split('.').next());
        number
            .and_then(|number| number.parse::<usize>().ok())
            .is_some_and(|n| (self.layers..self.layers + self.further_layers).contains(&n))
    }
}
