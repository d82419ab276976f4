//! Mixtral: a new model's configuration from the flags, its outline, and the weight of the load balance loss that is left
//! out.

use crate::checkpoint::hf::MixtralConfig;
use crate::rotary::RopeParameters;
use crate::train::config::ModelSizes;

use super::decoder::{default_ffn, head_width};
use super::{Family, Outline};

impl Family for MixtralConfig {
    fn of_sizes(sizes: &ModelSizes, seq: usize) -> Result<MixtralConfig, String> {
        let ModelSizes { hidden, layers, heads, kv_heads, ffn, vocab, tied } = *sizes;
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
            router_aux_loss_coef: MixtralConfig::ROUTER_AUX_LOSS_COEF,
            bos: serde_json::Value::Null,
            eos: serde_json::Value::Null,
        })
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

    fn warning(&self) -> Option<String> {
        let coefficient = self.router_aux_loss_coef;
        (coefficient != 0.0).then(|| {
            format!(
                "config.json has router_aux_loss_coef {coefficient}, which this run does not take: the program of the model \
                 sets the weight of the load balance loss"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::SIZES;
    use super::*;

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
    fn weight_of_the_balance_loss_is_warned_about() {
        let mut config = MixtralConfig::of_sizes(&SIZES, 16).unwrap();
        config.router_aux_loss_coef = 0.02;
        assert_eq!(
            config.warning().as_deref(),
            Some(
                "config.json has router_aux_loss_coef 0.02, which this run does not take: the program of the model sets the \
                 weight of the load balance loss"
            )
        );
        config.router_aux_loss_coef = 0.0;
        assert_eq!(config.warning(), None);
    }
}
