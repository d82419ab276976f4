//! Families of models: how a configuration follows from flags, and what of it the trainer needs to know.

use crate::checkpoint::hf::{Gpt2Config, Gpt2Dropout, HfConfig, LlamaConfig};

use super::config::ModelSizes;

mod language_model;

pub(in crate::train) use language_model::numbered;
pub use language_model::{HfName, LanguageModel};

/// The configuration of a family of language models that the trainer can make new models of, and export.
pub trait Family: HfConfig {
    /// The configuration of a new model of these sizes, for sequences of `seq` tokens.
    ///
    /// # Errors
    /// Sizes that the family does not have or that do not go together, in a message that begins with the flag.
    fn of_sizes(sizes: &ModelSizes, seq: usize) -> Result<Self, String>;

    /// What the trainer needs to know of it.
    fn outline(&self) -> Outline;

    /// What training here leaves out of what `config.json` asks for, if that is worth a warning.
    fn warning(&self) -> Option<String> {
        None
    }
}

/// A transformer as the trainer sees it: to describe it, and to judge data, lengths and memory by it.
#[derive(Debug, Clone, PartialEq)]
pub struct Outline {
    /// Transformer blocks.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Width of the feed-forward.
    pub ffn: usize,
    /// Whether the feed-forward is the product of two projections, rather than a function of one.
    pub gated: bool,
    /// Number of token ids.
    pub vocab: usize,
    /// The longest sequence that there are positions for; `None` where they have no end.
    pub longest: Option<usize>,
    /// Elements of all parameters, in floating point: sizes that no machine could hold do not overflow it.
    pub parameters: f64,
}

impl Family for LlamaConfig {
    fn of_sizes(sizes: &ModelSizes, seq: usize) -> Result<LlamaConfig, String> {
        let ModelSizes { hidden, layers, heads, kv_heads, ffn, vocab, tied } = *sizes;
        let head_dim = hidden / heads;
        if !head_dim.is_multiple_of(2) {
            return Err(format!(
                "--heads: {heads} makes heads {head_dim} wide; rotary positions need an even width"
            ));
        }
        Ok(LlamaConfig {
            hidden,
            // 8/3 of the width gives a gated feed-forward the size of a plain one of 4 (GLU Variants Improve
            // Transformer, arXiv 2002.05202, section 3).
            ffn: ffn.unwrap_or((8 * hidden / 3).next_multiple_of(64)),
            layers,
            heads,
            kv_heads: kv_heads.unwrap_or(heads),
            head_dim,
            vocab,
            norm_eps: 1e-5,
            rope_theta: 10_000.0,
            tied,
            max_positions: seq,
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
            head_dim: self.head_dim,
            ffn: self.ffn,
            gated: true,
            vocab: self.vocab,
            longest: None,
            parameters: self.parameters(),
        }
    }
}

impl Family for Gpt2Config {
    fn of_sizes(sizes: &ModelSizes, seq: usize) -> Result<Gpt2Config, String> {
        // Its head is tied whether or not the flag says so.
        let ModelSizes { hidden, layers, heads, kv_heads, ffn, vocab, tied: _ } = *sizes;
        if let Some(kv_heads) = kv_heads.filter(|kv_heads| *kv_heads != heads) {
            return Err(format!(
                "--kv-heads: {kv_heads} are not the {heads} of --heads; in a gpt2 each query head has keys and values \
                 of its own, so leave it out"
            ));
        }
        Ok(Gpt2Config {
            hidden,
            ffn: ffn.unwrap_or(4 * hidden),
            layers,
            heads,
            vocab,
            positions: seq,
            norm_eps: 1e-5,
            dropout: Gpt2Dropout::default(),
            bos: serde_json::Value::Null,
            eos: serde_json::Value::Null,
        })
    }

    fn outline(&self) -> Outline {
        Outline {
            layers: self.layers,
            hidden: self.hidden,
            heads: self.heads,
            kv_heads: self.heads,
            head_dim: self.head_dim(),
            ffn: self.ffn,
            gated: false,
            vocab: self.vocab,
            longest: Some(self.positions),
            parameters: self.parameters(),
        }
    }

    fn warning(&self) -> Option<String> {
        let Gpt2Dropout { embeddings, attention, residual } = self.dropout;
        let asked = [("embd", embeddings), ("attn", attention), ("resid", residual)];
        let asked: Vec<String> = asked
            .into_iter()
            .filter(|(_, rate)| *rate > 0.0)
            .map(|(place, rate)| format!("{place}_pdrop {rate}"))
            .collect();
        let asked = (!asked.is_empty()).then(|| asked.join(", "))?;
        Some(format!("config.json asks for dropout in training ({asked}); this run trains without"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: ModelSizes = ModelSizes {
        hidden: 24,
        layers: 2,
        heads: 4,
        kv_heads: None,
        ffn: None,
        vocab: 50,
        tied: false,
    };

    /// As many elements as the tensors have.
    fn assert_counted<F: Family>(config: &F) {
        let sizes = config.tensors().into_iter().map(|(_, shape)| shape.iter().product::<usize>());
        assert_eq!(config.outline().parameters, sizes.sum::<usize>() as f64);
    }

    #[test]
    fn what_is_left_out_follows_from_the_family() {
        let llama = LlamaConfig::of_sizes(&SIZES, 16).unwrap();
        assert_eq!((llama.kv_heads, llama.head_dim, llama.ffn, llama.tied), (4, 6, 64, false));
        assert_eq!(llama.outline().longest, None);
        let gpt2 = Gpt2Config::of_sizes(&SIZES, 16).unwrap();
        assert_eq!((gpt2.head_dim(), gpt2.ffn, gpt2.outline().longest), (6, 96, Some(16)));
        assert_counted(&llama);
        assert_counted(&LlamaConfig { tied: true, kv_heads: 2, ..llama });
        assert_counted(&gpt2);
        assert_counted(&Gpt2Config { ffn: 17, ..gpt2 });
    }

    #[test]
    fn sizes_that_a_family_does_not_have_are_refused_by_flag() {
        let odd = ModelSizes { hidden: 12, heads: 4, ..SIZES };
        let text = LlamaConfig::of_sizes(&odd, 16).unwrap_err();
        assert_eq!(text, "--heads: 4 makes heads 3 wide; rotary positions need an even width");
        assert!(Gpt2Config::of_sizes(&odd, 16).is_ok());
        let grouped = ModelSizes { kv_heads: Some(2), ..SIZES };
        assert_eq!(LlamaConfig::of_sizes(&grouped, 16).unwrap().kv_heads, 2);
        let text = Gpt2Config::of_sizes(&grouped, 16).unwrap_err();
        assert!(text.starts_with("--kv-heads: 2 are not the 4 of --heads; "), "{text}");
        assert!(Gpt2Config::of_sizes(&ModelSizes { kv_heads: Some(4), ..SIZES }, 16).is_ok());
    }

    #[test]
    fn dropout_that_is_left_out_is_told() {
        let mut config = Gpt2Config::of_sizes(&SIZES, 16).unwrap();
        assert_eq!(config.warning(), None);
        config.dropout = Gpt2Dropout { embeddings: 0.1, attention: 0.0, residual: 0.2 };
        assert_eq!(
            config.warning().as_deref(),
            Some(
                "config.json asks for dropout in training (embd_pdrop 0.1, resid_pdrop 0.2); this run trains without"
            )
        );
    }
}
