//! `config.json` of a Mixtral model.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::decoder::{
    DecoderSizes, default_ffn, exported_positions, extend_positions, head_width, is_tensor_name,
    read_padding, refuse_biases, refuse_layer_types, refuse_rate, refuse_window, tensor_role,
};
use meshwright_core::rotary::RopeParameters;
use meshwright_store::checkpoint::hf::{
    HfConfig, HfSettings, StackedWeights, TensorRole, read_rope, write_rope,
};
use meshwright_store::family::{Family, LoadBalancing, ModelSizes, Outline};

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

impl HfConfig for MixtralConfig {
    const MODEL_TYPE: &'static str = "mixtral";

    fn from_settings(keys: &HfSettings<'_>) -> Result<MixtralConfig, String> {
        refuse_unsupported(keys)?;
        // A `null` stands for as many as query heads.
        let is_null =
            keys.entries().any(|(key, value)| key == "num_key_value_heads" && value.is_null());
        let DecoderSizes { hidden, heads, kv_heads, head_dim } =
            DecoderSizes::read(keys, (!is_null).then_some(8))?;
        let experts = keys.count("num_local_experts")?.unwrap_or(8);
        let top_k = keys.count("num_experts_per_tok")?.unwrap_or(2);
        if top_k > experts {
            return Err(format!(
                "num_experts_per_tok {top_k} is more than num_local_experts {experts}"
            ));
        }
        let vocab = keys.required("vocab_size")?;
        let max_positions = keys.count("max_position_embeddings")?.unwrap_or(131_072);
        Ok(MixtralConfig {
            hidden,
            ffn: keys.required("intermediate_size")?,
            layers: keys.required("num_hidden_layers")?,
            heads,
            kv_heads,
            head_dim,
            experts,
            top_k,
            vocab,
            norm_eps: keys.number("rms_norm_eps")?.unwrap_or(1e-5),
            rope: read_rope(keys, MixtralConfig::ROPE_THETA, head_dim, max_positions)?,
            tied: keys.switch("tie_word_embeddings")?.unwrap_or(false),
            max_positions,
            router_aux_loss_coef: keys
                .number("router_aux_loss_coef")?
                .unwrap_or(MixtralConfig::ROUTER_AUX_LOSS_COEF),
            router_z_loss_coef: keys.number("router_z_loss_coef")?.unwrap_or(0.0),
            padding: read_padding(keys, vocab)?,
            bos: keys.get("bos_token_id").cloned().unwrap_or(Value::Null),
            eos: keys.get("eos_token_id").cloned().unwrap_or(Value::Null),
        })
    }

    fn to_json(&self) -> Value {
        let mut config = json!({
            "architectures": ["MixtralForCausalLM"],
            "model_type": MixtralConfig::MODEL_TYPE,
            "hidden_size": self.hidden,
            "intermediate_size": self.ffn,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "num_local_experts": self.experts,
            "num_experts_per_tok": self.top_k,
            "vocab_size": self.vocab,
            "rms_norm_eps": self.norm_eps,
            "tie_word_embeddings": self.tied,
            "max_position_embeddings": exported_positions(&self.rope, self.max_positions),
            "router_aux_loss_coef": self.router_aux_loss_coef,
            "router_jitter_noise": 0.0,
            "sliding_window": null,
            "pad_token_id": self.padding,
            "bos_token_id": self.bos,
            "eos_token_id": self.eos,
            "hidden_act": "silu",
            "torch_dtype": "float32",
        });
        if let Value::Object(config) = &mut config {
            if self.router_z_loss_coef > 0.0 {
                config.insert("router_z_loss_coef".into(), json!(self.router_z_loss_coef));
            }
            write_rope(&self.rope, config);
        }
        config
    }

    fn layers(&self) -> (&'static str, usize) {
        ("num_hidden_layers", self.layers)
    }

    /// In memory, newer versions of `transformers` have other names, and the experts of a layer in two tensors; some
    /// programs store these.
    fn tensor_role<'a>(&self, stored: &'a str) -> TensorRole<'a> {
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

    fn is_tensor_name(&self, stored: &str) -> bool {
        is_tensor_name(stored)
    }

    fn untie(&mut self) -> bool {
        self.tied = false;
        true
    }
}

impl Family for MixtralConfig {
    fn of_sizes(sizes: &ModelSizes, seq: usize) -> Result<MixtralConfig, String> {
        let ModelSizes { hidden, layers, heads, kv_heads, ffn, vocab, tied, .. } = *sizes;
        Ok(MixtralConfig {
            hidden,
            ffn: ffn.unwrap_or_else(|| default_ffn(hidden)),
            layers,
            heads,
            kv_heads: kv_heads.unwrap_or(heads),
            head_dim: head_width(hidden, heads)?,
            experts: 8,
            top_k: 2,
            vocab,
            norm_eps: 1e-5,
            rope: RopeParameters::with_theta(MixtralConfig::ROPE_THETA),
            tied,
            max_positions: seq,
            router_aux_loss_coef: BALANCE,
            router_z_loss_coef: 0.0,
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

    fn set_experts(&mut self, experts: Option<usize>, top_k: Option<usize>) -> Result<(), String> {
        self.experts = experts.unwrap_or(self.experts);
        self.top_k = top_k.unwrap_or(self.top_k);
        let MixtralConfig { experts, top_k, .. } = *self;
        if top_k > experts {
            return Err(format!("--top-k: {top_k} is more than --experts {experts}"));
        }
        Ok(())
    }

    fn set_balancing(
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

/// Refuses settings of other Mixtral-like models that are not implemented here. Ignoring them would change the results.
fn refuse_unsupported(keys: &HfSettings<'_>) -> Result<(), String> {
    // Whether a program adds the load-balancing loss; here `--balance` says it.
    keys.ignore(&["output_router_logits"]);
    keys.expect_text("hidden_act", &["silu"])?;
    refuse_biases(keys, &["attention_bias"])?;
    refuse_rate(keys, "router_jitter_noise")?;
    refuse_window(keys)?;
    refuse_layer_types(keys)?;
    refuse_rate(keys, "attention_dropout")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::SIZES;

    #[test]
    fn omitted_sizes_have_the_ratios_of_a_mixtral() {
        let mixtral = MixtralConfig::of_sizes(&SIZES, 16).unwrap();
        assert_eq!((mixtral.kv_heads, mixtral.head_dim, mixtral.ffn), (4, 6, 64));
        assert_eq!((mixtral.experts, mixtral.top_k, mixtral.rope.theta), (8, 2, 1e6));
        assert_eq!(mixtral.outline().longest, None);
        let sizes = ModelSizes { kv_heads: Some(2), ffn: Some(20), ..SIZES };
        let mixtral = MixtralConfig::of_sizes(&sizes, 16).unwrap();
        assert_eq!((mixtral.kv_heads, mixtral.ffn), (2, 20));
    }

    #[test]
    fn experts_are_those_of_the_flags() {
        let mut config = MixtralConfig::of_sizes(&SIZES, 16).unwrap();
        config.set_experts(Some(4), None).unwrap();
        assert_eq!((config.experts, config.top_k), (4, 2));
        config.set_experts(None, Some(3)).unwrap();
        assert_eq!((config.experts, config.top_k), (4, 3));
        let refused = config.set_experts(Some(2), None).unwrap_err();
        assert_eq!(refused, "--top-k: 3 is more than --experts 2");
    }

    #[test]
    fn penalties_are_those_of_the_flags() {
        let mut config = MixtralConfig::of_sizes(&SIZES, 16).unwrap();
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
