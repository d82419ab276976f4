//! Llama: a new model's configuration from the flags, and its outline.

use crate::checkpoint::hf::LlamaConfig;
use crate::rotary::RopeParameters;
use crate::train::config::ModelSizes;

use super::decoder::{default_ffn, extend_positions, head_width};
use super::{Family, Outline};

impl Family for LlamaConfig {
    fn of_sizes(sizes: &ModelSizes, seq: usize) -> Result<LlamaConfig, String> {
        let ModelSizes { hidden, layers, heads, kv_heads, ffn, vocab, tied } = *sizes;
        Ok(LlamaConfig {
            hidden,
            ffn: ffn.unwrap_or_else(|| default_ffn(hidden)),
            layers,
            heads,
            kv_heads: kv_heads.unwrap_or(heads),
            head_dim: head_width(hidden, heads)?,
            vocab,
            norm_eps: 1e-5,
            rope: RopeParameters::default(),
            tied,
            max_positions: seq,
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
}

#[cfg(test)]
mod tests {
    use super::super::tests::SIZES;
    use super::*;

    #[test]
    fn omitted_sizes_have_the_ratios_of_a_llama() {
        let llama = LlamaConfig::of_sizes(&SIZES, 16).unwrap();
        assert_eq!((llama.kv_heads, llama.head_dim, llama.ffn, llama.tied), (4, 6, 64, false));
        assert_eq!(llama.outline().longest, None);
        let grouped = ModelSizes { kv_heads: Some(2), ..SIZES };
        assert_eq!(LlamaConfig::of_sizes(&grouped, 16).unwrap().kv_heads, 2);
    }

    #[test]
    fn odd_head_width_is_refused_by_flag() {
        let odd = ModelSizes { hidden: 12, heads: 4, ..SIZES };
        let text = LlamaConfig::of_sizes(&odd, 16).unwrap_err();
        assert_eq!(text, "--heads: 4 makes heads 3 wide; rotary positions need an even width");
    }
}
