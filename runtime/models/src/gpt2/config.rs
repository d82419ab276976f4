//! `config.json` of a GPT-2 model.

use std::borrow::Cow;

use serde_json::{Value, json};

use meshwright_store::checkpoint::hf::{DerivedTensor, HfConfig, HfSettings, TensorRole};
use meshwright_store::family::{Family, ModelSizes, Outline};

/// The sizes and constants of a GPT-2 model (Radford et al., "Language Models are Unsupervised Multitask Learners",
/// 2019): learned positions, LayerNorm, biases, GELU, and a head that is the embedding.
#[derive(Debug, Clone, PartialEq)]
pub struct Gpt2Config {
    /// `n_embd`: width of the residual stream.
    pub hidden: usize,
    /// `n_inner`: width of the feed-forward; by default four times `n_embd`.
    pub ffn: usize,
    /// `n_layer`: transformer blocks.
    pub layers: usize,
    /// `n_head`: attention heads, each `n_embd / n_head` wide.
    pub heads: usize,
    /// `vocab_size`: number of token ids.
    pub vocab: usize,
    /// `n_positions`: rows of the table of positions, the longest sequence.
    pub positions: usize,
    /// `layer_norm_epsilon`: added to the variance in LayerNorm.
    pub norm_eps: f64,
    /// Rates of dropout.
    pub dropout: Gpt2Dropout,
    /// `bos_token_id`, as in the file.
    pub bos: Value,
    /// `eos_token_id`, as in the file.
    pub eos: Value,
}

/// Dropout rates of `config.json`. The two that are missing there are 0.1, as in transformers.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Gpt2Dropout {
    /// `embd_pdrop`: after the embeddings.
    pub embeddings: f64,
    /// `attn_pdrop`: on attention weights. It is not applied, and a run with a rate above 0 has a warning.
    pub attention: f64,
    /// `resid_pdrop`: on additions to the residual stream.
    pub residual: f64,
}

impl Gpt2Config {
    /// Returns the width of one head.
    pub fn head_dim(&self) -> usize {
        self.hidden / self.heads
    }
}

impl HfConfig for Gpt2Config {
    const MODEL_TYPE: &'static str = "gpt2";

    fn from_settings(keys: &HfSettings<'_>) -> Result<Gpt2Config, String> {
        refuse_unsupported(keys)?;
        let (hidden, heads) = (keys.required("n_embd")?, keys.required("n_head")?);
        if !hidden.is_multiple_of(heads) {
            return Err(format!("n_head {heads} does not divide n_embd {hidden}"));
        }
        let rate = |key: &str| match keys.number(key)? {
            Some(rate) if rate >= 1.0 => Err(format!("{key} must be below 1, not {rate}")),
            rate => Ok(rate.unwrap_or(0.1)),
        };
        Ok(Gpt2Config {
            hidden,
            ffn: keys.count("n_inner")?.unwrap_or(4 * hidden),
            layers: keys.required("n_layer")?,
            heads,
            vocab: keys.required("vocab_size")?,
            positions: keys.count("n_positions")?.unwrap_or(1024),
            norm_eps: keys.number("layer_norm_epsilon")?.unwrap_or(1e-5),
            dropout: Gpt2Dropout {
                embeddings: rate("embd_pdrop")?,
                attention: rate("attn_pdrop")?,
                residual: rate("resid_pdrop")?,
            },
            bos: keys.get("bos_token_id").cloned().unwrap_or(Value::Null),
            eos: keys.get("eos_token_id").cloned().unwrap_or(Value::Null),
        })
    }

    fn to_json(&self) -> Value {
        json!({
            "architectures": ["GPT2LMHeadModel"],
            "model_type": Gpt2Config::MODEL_TYPE,
            "n_embd": self.hidden,
            "n_inner": self.ffn,
            "n_layer": self.layers,
            "n_head": self.heads,
            "vocab_size": self.vocab,
            "n_positions": self.positions,
            // An older name, which converters to other formats read.
            "n_ctx": self.positions,
            "layer_norm_epsilon": self.norm_eps,
            "embd_pdrop": self.dropout.embeddings,
            "attn_pdrop": self.dropout.attention,
            "resid_pdrop": self.dropout.residual,
            "bos_token_id": self.bos,
            "eos_token_id": self.eos,
            "activation_function": "gelu_new",
            "tie_word_embeddings": true,
            "torch_dtype": "float32",
        })
    }

    fn layers(&self) -> (&'static str, usize) {
        ("n_layer", self.layers)
    }

    /// Folders of a bare `GPT2Model`, such as the first ones published, omit the prefix `transformer.`. Older ones
    /// store the causal mask of each layer, and some the head, which is tied to the embedding.
    fn is_tensor_name(&self, stored: &str) -> bool {
        let part = stored.strip_prefix("transformer.").unwrap_or(stored);
        let is_part = ["wte.", "wpe.", "h.", "ln_f."].iter().any(|name| part.starts_with(name));
        is_part || stored.starts_with("lm_head.")
    }

    fn tensor_role<'a>(&self, stored: &'a str) -> TensorRole<'a> {
        if stored.ends_with(".attn.bias") {
            TensorRole::Derived(DerivedTensor::CausalMask)
        } else if stored.ends_with(".attn.masked_bias") {
            TensorRole::Derived(DerivedTensor::MaskedScore)
        } else if stored == "lm_head.weight" {
            TensorRole::Derived(DerivedTensor::TiedTo("transformer.wte.weight"))
        } else if stored.starts_with("transformer.") {
            TensorRole::Model(Cow::Borrowed(stored))
        } else {
            TensorRole::Model(Cow::Owned(format!("transformer.{stored}")))
        }
    }
}

impl Family for Gpt2Config {
    fn of_sizes(sizes: &ModelSizes, seq: usize) -> Result<Gpt2Config, String> {
        // The head is always tied, independently of the flag.
        let ModelSizes { hidden, layers, heads, kv_heads, ffn, vocab, .. } = *sizes;
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
        let Gpt2Dropout { attention, .. } = self.dropout;
        (attention > 0.0).then(|| {
            format!(
                "attn_pdrop is {attention}, in config.json or because it is missing there: dropout of attention \
                 weights \
                 is not applied"
            )
        })
    }
}

/// Refuses settings of other GPT-2 models that are not implemented here. Ignoring them would change the results.
fn refuse_unsupported(keys: &HfSettings<'_>) -> Result<(), String> {
    // Of heads for other tasks, the size of masks that old folders store, and the dtype of scores in half precision.
    keys.ignore(&[
        "summary_type",
        "summary_use_proj",
        "summary_activation",
        "summary_first_dropout",
    ]);
    keys.ignore(&["summary_proj_to_labels", "n_ctx", "reorder_and_upcast_attn", "pad_token_id"]);
    // Two names of the tanh approximation.
    keys.expect_text("activation_function", &["gelu_new", "gelu_pytorch_tanh"])?;
    for (key, wanted) in [
        ("scale_attn_weights", true),
        ("scale_attn_by_inverse_layer_idx", false),
        ("add_cross_attention", false),
        ("tie_word_embeddings", true),
    ] {
        match keys.switch(key)? {
            Some(found) if found != wanted => {
                return Err(format!("{key} is {found}; only {wanted} is supported"));
            }
            _ => {}
        }
    }
    for (key, reason) in [
        ("rope_theta", "positions are learned"),
        ("rope_parameters", "positions are learned"),
        ("rope_scaling", "positions are learned"),
        ("num_key_value_heads", "each query head has keys and values of its own"),
        ("head_dim", "a head is n_embd / n_head wide"),
        ("intermediate_size", "the width of the feed-forward is n_inner"),
    ] {
        if keys.get(key).is_some() {
            return Err(format!("{key} is not a setting of a gpt2, where {reason}; leave it out"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::SIZES;

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
    fn dropout_of_attention_weights_is_not_applied_silently() {
        let mut config = Gpt2Config::of_sizes(&SIZES, 16).unwrap();
        config.dropout = Gpt2Dropout { embeddings: 0.1, attention: 0.0, residual: 0.2 };
        assert_eq!(config.warning(), None);
        config.dropout.attention = 0.1;
        let expected = "attn_pdrop is 0.1, in config.json or because it is missing there: dropout of attention \
                        weights is not applied";
        assert_eq!(config.warning().as_deref(), Some(expected));
    }
}
