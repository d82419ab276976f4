//! Mixtral: a new model's configuration from the flags, and its outline.

use crate::checkpoint::hf::MixtralConfig;
use crate::rotary::RopeParameters;
use crate::train::config::ModelSizes;

use super::decoder::{default_ffn, extend_positions, head_width};
use super::{Family, Outline};

/// Weight of the load balance loss of a new model.
const BALANCE: f64 = 0.01;

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

    fn set_penalties(&mut self, balance: Option<f64>, z_loss: Option<f64>) -> Result<(), String> {
        self.router_aux_loss_coef = balance.unwrap_or(self.router_aux_loss_coef);
        self.router_z_loss_coef = z_loss.unwrap_or(self.router_z_loss_coef);
        Ok(())
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
    fn penalties_are_those_of_the_flags() {
        let mut config = MixtralConfig::of_sizes(&SIZES, 16).unwrap();
        let penalties =
            |config: &MixtralConfig| (config.router_aux_loss_coef, config.router_z_loss_coef);
        assert_eq!(penalties(&config), (0.01, 0.0));
        config.set_penalties(None, Some(0.001)).unwrap();
        assert_eq!(penalties(&config), (0.01, 0.001));
        config.set_penalties(Some(0.0), None).unwrap();
        assert_eq!(penalties(&config), (0.0, 0.001));
    }
}
