//! `config.json` of a GPT-2 model.

use std::borrow::Cow;

use serde_json::Value;

use meshwright_store::checkpoint::hf::{DerivedTensor, HfKeys, KeyResult, TensorRole};
use meshwright_store::family::{ConfigKeys, SizeFlag};

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

/// Dropout rates of `config.json`. Those that are missing there are 0.1, as in transformers.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Gpt2Dropout {
    /// `embd_pdrop`: after the embeddings.
    pub embeddings: f64,
    /// `attn_pdrop`: on attention weights.
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

/// A GPT-2 without sizes.
impl Default for Gpt2Config {
    fn default() -> Gpt2Config {
        Gpt2Config {
            hidden: 1,
            ffn: 1,
            layers: 1,
            heads: 1,
            vocab: 1,
            positions: 1,
            norm_eps: 1e-5,
            dropout: Gpt2Dropout::default(),
            bos: Value::Null,
            eos: Value::Null,
        }
    }
}

impl ConfigKeys for Gpt2Config {
    const MODEL_TYPES: &'static [&'static str] = &["gpt2"];

    fn architecture(&self) -> Option<&'static str> {
        Some("GPT2LMHeadModel")
    }

    fn keys(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        name_fixed_keys(keys)?;
        keys.size(SizeFlag::HIDDEN, "n_embd", &mut self.hidden)?;
        keys.size(SizeFlag::HEADS, "n_head", &mut self.heads)?;
        let Gpt2Config { hidden, heads, .. } = *self;
        keys.require(hidden.is_multiple_of(heads), || {
            format!("n_head {heads} does not divide n_embd {hidden}")
        })?;
        keys.size_or(SizeFlag::FFN, "n_inner", &mut self.ffn, 4 * hidden)?;
        keys.size(SizeFlag::LAYERS, "n_layer", &mut self.layers)?;
        keys.size(SizeFlag::VOCAB, "vocab_size", &mut self.vocab)?;
        keys.position_table("n_positions", &mut self.positions, 1024)?;
        // An older name, which converters to other formats read.
        keys.write("n_ctx", self.positions);
        keys.number("layer_norm_epsilon", &mut self.norm_eps, 1e-5)?;
        let of_file = if keys.is_new() { 0.0 } else { 0.1 };
        let Gpt2Dropout { embeddings, attention, residual } = &mut self.dropout;
        for (key, rate) in
            [("embd_pdrop", embeddings), ("attn_pdrop", attention), ("resid_pdrop", residual)]
        {
            keys.number(key, rate, of_file)?;
            let rate = *rate;
            keys.require(rate < 1.0, || format!("{key} must be below 1, not {rate}"))?;
        }
        keys.token("bos_token_id", &mut self.bos)?;
        keys.token("eos_token_id", &mut self.eos)
    }

    /// Folders of a bare `GPT2Model`, such as the first ones published, omit the prefix `transformer.`. Older ones
    /// store the causal mask of each layer, and some the head, which is tied to the embedding.
    fn is_name(&self, stored: &str) -> bool {
        let part = stored.strip_prefix("transformer.").unwrap_or(stored);
        let is_part = ["wte.", "wpe.", "h.", "ln_f."].iter().any(|name| part.starts_with(name));
        is_part || stored.starts_with("lm_head.")
    }

    fn role_of<'a>(&self, stored: &'a str) -> TensorRole<'a> {
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

/// Names keys of other GPT-2 models whose settings are not implemented here, and refuses other values. Ignoring them
/// would change the results.
fn name_fixed_keys(keys: &mut HfKeys<'_>) -> KeyResult {
    // Of heads for other tasks, the size of masks that old folders store, and the dtype of scores in half precision.
    keys.ignore(&[
        "summary_type",
        "summary_use_proj",
        "summary_activation",
        "summary_first_dropout",
    ]);
    keys.ignore(&["summary_proj_to_labels", "n_ctx", "reorder_and_upcast_attn", "pad_token_id"]);
    // Two names of the tanh approximation.
    keys.only("activation_function", &["gelu_new", "gelu_pytorch_tanh"])?;
    keys.always_tied()?;
    for (key, wanted) in [
        ("scale_attn_weights", true),
        ("scale_attn_by_inverse_layer_idx", false),
        ("add_cross_attention", false),
    ] {
        keys.only_switch(key, wanted)?;
    }
    for (key, reason) in [
        ("rope_theta", "positions are learned"),
        ("rope_parameters", "positions are learned"),
        ("rope_scaling", "positions are learned"),
        ("num_key_value_heads", "each query head has keys and values of its own"),
        ("head_dim", "a head is n_embd / n_head wide"),
        ("intermediate_size", "the width of the feed-forward is n_inner"),
    ] {
        keys.list(&[key]);
        let found = keys.settings().and_then(|settings| settings.get(key));
        keys.require(found.is_none(), || {
            format!("{key} is not a setting of a gpt2, where {reason}; leave it out")
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::SIZES;
    use meshwright_store::family::{Family, ModelSizes};

    fn of_sizes(sizes: &ModelSizes) -> Result<Gpt2Config, String> {
        Gpt2Config::new_model("gpt2", sizes, 16)
    }

    #[test]
    fn omitted_sizes_have_the_ratios_of_a_gpt2() {
        let gpt2 = of_sizes(&SIZES).unwrap();
        assert_eq!((gpt2.head_dim(), gpt2.ffn, gpt2.outline().longest), (6, 96, Some(16)));
        assert!(of_sizes(&ModelSizes { hidden: 12, heads: 4, ..SIZES }).is_ok());
        assert!(of_sizes(&ModelSizes { kv_heads: Some(4), tied: true, ..SIZES }).is_ok());
    }

    #[test]
    fn grouped_queries_are_refused_by_flag() {
        let grouped = ModelSizes { kv_heads: Some(2), ..SIZES };
        let text = of_sizes(&grouped).unwrap_err();
        assert!(text.starts_with("--kv-heads: 2 differs from --heads 4, "), "{text}");
    }
}
