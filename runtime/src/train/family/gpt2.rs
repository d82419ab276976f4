//! GPT-2: a new model's configuration from the flags, its outline, and the dropout that is left out.

use crate::checkpoint::hf::{Gpt2Config, Gpt2Dropout};
use crate::train::config::ModelSizes;

use super::{Family, Outline};

impl Family for Gpt2Config {
    fn of_sizes(sizes: &ModelSizes, seq: usize) -> Result<Gpt2Config, String> {
        // The head is always tied, independently of the flag.
        let ModelSizes { hidden, layers, heads, kv_heads, ffn, vocab, tied: _ } = *sizes;
        if let Some(kv_heads) = kv_heads.filter(|kv_heads| *kv_heads != heads) {
            return Err(format!(
                "--kv-heads: {kv_heads} differs from --heads {heads}, but a gpt2 has one key-value head per query \
                 head; leave --kv-heads out"
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
            vocab: self.vocab,
            longest: Some(self.positions),
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
        Some(format!("config.json sets dropout rates ({asked}), which this run does not apply"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::SIZES;
    use super::*;

    #[test]
    fn omitted_sizes_have_the_ratios_of_a_gpt2() {
        let gpt2 = Gpt2Config::of_sizes(&SIZES, 16).unwrap();
        assert_eq!((gpt2.head_dim(), gpt2.ffn, gpt2.outline().longest), (6, 96, Some(16)));
        assert!(Gpt2Config::of_sizes(&ModelSizes { hidden: 12, heads: 4, ..SIZES }, 16).is_ok());
        assert!(Gpt2Config::of_sizes(&ModelSizes { kv_heads: Some(4), ..SIZES }, 16).is_ok());
    }

    #[test]
    fn grouped_queries_are_refused_by_flag() {
        let grouped = ModelSizes { kv_heads: Some(2), ..SIZES };
        let text = Gpt2Config::of_sizes(&grouped, 16).unwrap_err();
        assert!(text.starts_with("--kv-heads: 2 differs from --heads 4, "), "{text}");
    }

    #[test]
    fn dropout_of_the_configuration_is_warned_about() {
        let mut config = Gpt2Config::of_sizes(&SIZES, 16).unwrap();
        assert_eq!(config.warning(), None);
        config.dropout = Gpt2Dropout { embeddings: 0.1, attention: 0.0, residual: 0.2 };
        assert_eq!(
            config.warning().as_deref(),
            Some(
                "config.json sets dropout rates (embd_pdrop 0.1, resid_pdrop 0.2), which this run does not apply"
            )
        );
    }
}
