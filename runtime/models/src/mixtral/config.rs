//! `config.json` of a Mixtral model.

use std::borrow::Cow;

use serde_json::Value;

use crate::decoder_keys::{
    AttentionDefaults, AttentionFields, default_ffn, is_tensor_name, no_biases, no_layer_types,
    no_partial_rotation, no_window, tensor_role,
};
use crate::expert_keys::ExpertFields;
use meshwright_core::rotary::RopeParameters;
use meshwright_store::checkpoint::hf::{HfKeys, KeyResult, StackedWeights, TensorRole};
use meshwright_store::family::{ConfigKeys, LoadBalancing, SizeFlag};

/// Weight of the load-balancing loss of a new model.
const BALANCE: f64 = 0.01;

/// The sizes and constants of a Mixtral model (Jiang et al., "Mixtral of Experts", 2024): a Llama whose feed-forward is
/// a mixture of experts.
#[derive(Debug, Clone, PartialEq)]
pub struct MixtralConfig {
    /// `hidden_size`: width of the residual stream.
    pub hidden: usize,
    /// `intermediate_size`: width of the feed-forward of each expert.
    pub ffn: usize,
    /// `num_hidden_layers`: transformer blocks.
    pub layers: usize,
    /// `num_attention_heads`: query heads.
    pub heads: usize,
    /// `num_key_value_heads`: key and value heads; by default 8.
    pub kv_heads: usize,
    /// `head_dim`: width of one head; by default `hidden / heads`.
    pub head_dim: usize,
    /// `num_local_experts`: experts of each block, by default 8.
    pub experts: usize,
    /// `num_experts_per_tok`: experts that each token chooses, by default 2.
    pub top_k: usize,
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
    /// `router_aux_loss_coef`: weight of the load-balancing loss of each block.
    pub router_aux_loss_coef: f64,
    /// `router_z_loss_coef`: weight of the z-loss of each router, which `transformers` does not have.
    pub router_z_loss_coef: f64,
    /// `pad_token_id`: the row of the embedding that look-ups do not train.
    pub padding: Option<usize>,
    /// `bos_token_id`, as in the file.
    pub bos: Value,
    /// `eos_token_id`, as in the file: one id or several.
    pub eos: Value,
}

impl MixtralConfig {
    /// The base of rotary frequencies in files without one.
    const ROPE_THETA: f64 = 1e6;
    /// The weight of the load-balancing loss in files without one.
    const ROUTER_AUX_LOSS_COEF: f64 = 0.001;
}

/// A Mixtral without sizes.
impl Default for MixtralConfig {
    fn default() -> MixtralConfig {
        MixtralConfig {
            hidden: 1,
            ffn: 1,
            layers: 1,
            heads: 1,
            kv_heads: 1,
            head_dim: 1,
            experts: 8,
            top_k: 2,
            vocab: 1,
            norm_eps: 1e-5,
            rope: RopeParameters::with_theta(MixtralConfig::ROPE_THETA),
            tied: false,
            max_positions: 1,
            router_aux_loss_coef: BALANCE,
            router_z_loss_coef: 0.0,
            padding: None,
            bos: Value::Null,
            eos: Value::Null,
        }
    }
}

impl ConfigKeys for MixtralConfig {
    const MODEL_TYPES: &'static [&'static str] = &["mixtral"];

    fn architecture(&self) -> Option<&'static str> {
        Some("MixtralForCausalLM")
    }

    fn keys(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        // Whether a program adds the load-balancing loss; here `--balance` says it.
        keys.ignore(&["output_router_logits"]);
        keys.only("hidden_act", &["silu"])?;
        no_biases(keys, &["attention_bias"])?;
        no_window(keys)?;
        no_layer_types(keys)?;
        for rate in ["router_jitter_noise", "attention_dropout"] {
            keys.no_rate(rate)?;
        }
        keys.write("router_jitter_noise", 0.0);
        keys.write("sliding_window", Value::Null);
        keys.size(SizeFlag::HIDDEN, "hidden_size", &mut self.hidden)?;
        let ffn = default_ffn(self.hidden);
        keys.size_or_new(SizeFlag::FFN, "intermediate_size", &mut self.ffn, ffn)?;
        keys.size(SizeFlag::LAYERS, "num_hidden_layers", &mut self.layers)?;
        let (heads, kv_heads) = (&mut self.heads, &mut self.kv_heads);
        let fields = AttentionFields { heads, kv_heads, head_dim: &mut self.head_dim };
        let absent = AttentionDefaults { heads: None, kv_heads: Some(8), head_dim: None };
        fields.keys(keys, self.hidden, absent)?;
        let key = "num_local_experts";
        let fields = ExpertFields { key, experts: &mut self.experts, top_k: &mut self.top_k };
        fields.keys(keys, [8, 2])?;
        keys.size(SizeFlag::VOCAB, "vocab_size", &mut self.vocab)?;
        keys.number("rms_norm_eps", &mut self.norm_eps, 1e-5)?;
        keys.tied(&mut self.tied, false)?;
        keys.max_positions(&mut self.max_positions, 131_072)?;
        let theta = MixtralConfig::ROPE_THETA;
        keys.rope(&mut self.rope, theta, self.head_dim, self.max_positions)?;
        no_partial_rotation(keys, &self.rope)?;
        let balance = if keys.is_new() { BALANCE } else { MixtralConfig::ROUTER_AUX_LOSS_COEF };
        keys.number("router_aux_loss_coef", &mut self.router_aux_loss_coef, balance)?;
        let z_loss = "router_z_loss_coef";
        if let Some(settings) = keys.settings() {
            self.router_z_loss_coef = settings.number(z_loss)?.unwrap_or(0.0);
        }
        // Which `transformers` does not have.
        if self.router_z_loss_coef > 0.0 {
            keys.write(z_loss, self.router_z_loss_coef);
        }
        keys.padding(&mut self.padding, self.vocab, None)?;
        keys.token("bos_token_id", &mut self.bos)?;
        keys.token("eos_token_id", &mut self.eos)
    }

    /// In memory, newer versions of `transformers` have other names, and the experts of a layer in two tensors; some
    /// programs store these.
    fn role_of<'a>(&self, stored: &'a str) -> TensorRole<'a> {
        let role = tensor_role(stored, self.tied, &self.rope, self.head_dim);
        let TensorRole::Model(name) = &role else { return role };
        let Some((block, part)) = name.split_once(".mlp.") else { return role };
        let usual = |part: &str| format!("{block}.block_sparse_moe.{part}");
        match part {
            "experts.gate_up_proj" => TensorRole::StackOfWeights(StackedWeights {
                names: ["w1", "w3"].map(|name| usual(&format!("experts.*.{name}.weight"))).into(),
            }),
            "experts.down_proj" => TensorRole::StackOfWeights(StackedWeights {
                names: vec![usual("experts.*.w2.weight")],
            }),
            part => TensorRole::Model(Cow::Owned(usual(part))),
        }
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
        if let Some(balance) = balance {
            self.router_aux_loss_coef = balance.weight_of_loss("mixtral")?;
        }
        self.router_z_loss_coef = z_loss.unwrap_or(self.router_z_loss_coef);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::SIZES;
    use meshwright_store::family::{Family, ModelSizes};

    fn of_sizes(sizes: &ModelSizes) -> Result<MixtralConfig, String> {
        MixtralConfig::new_model("mixtral", sizes, 16)
    }

    #[test]
    fn omitted_sizes_have_the_ratios_of_a_mixtral() {
        let mixtral = of_sizes(&SIZES).unwrap();
        assert_eq!((mixtral.kv_heads, mixtral.head_dim, mixtral.ffn), (4, 6, 64));
        assert_eq!((mixtral.experts, mixtral.top_k, mixtral.rope.theta), (8, 2, 1e6));
        assert_eq!(mixtral.outline().longest, None);
        let sizes = ModelSizes { kv_heads: Some(2), ffn: Some(20), ..SIZES };
        let mixtral = of_sizes(&sizes).unwrap();
        assert_eq!((mixtral.kv_heads, mixtral.ffn), (2, 20));
    }

    #[test]
    fn experts_are_those_of_the_flags() {
        let of_flags = |experts, top_k| {
            let config = of_sizes(&ModelSizes { experts, top_k, ..SIZES });
            config.map(|config| (config.experts, config.top_k))
        };
        assert_eq!(of_flags(Some(4), None), Ok((4, 2)));
        assert_eq!(of_flags(None, Some(3)), Ok((8, 3)));
        let refused = of_flags(Some(2), Some(3)).unwrap_err();
        assert_eq!(refused, "--top-k: 3 is more than --experts 2");
        let refused = of_flags(Some(64), Some(33)).unwrap_err();
        assert_eq!(refused, "--top-k is 33; a token can choose at most 32 experts");
        assert_eq!(of_flags(Some(64), Some(32)), Ok((64, 32)));
    }

    #[test]
    fn penalties_are_those_of_the_flags() {
        let mut config = of_sizes(&SIZES).unwrap();
        let penalties =
            |config: &MixtralConfig| (config.router_aux_loss_coef, config.router_z_loss_coef);
        assert_eq!(penalties(&config), (0.01, 0.0));
        config.set_balancing(None, Some(0.001)).unwrap();
        assert_eq!(penalties(&config), (0.01, 0.001));
        config.set_balancing(Some(LoadBalancing::Off), None).unwrap();
        assert_eq!(penalties(&config), (0.0, 0.001));
        let refused = config.set_balancing(Some(LoadBalancing::Bias(0.1)), None).unwrap_err();
        assert_eq!(
            refused,
            "--balance: a mixtral has no bias of the choice of experts; use batch=X or none"
        );
    }
}
