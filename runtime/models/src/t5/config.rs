//! `config.json` of a T5.

use std::borrow::Cow;

use serde_json::Value;

use crate::decoder_keys::default_ffn;
use crate::token_keys::{end_id, known_id, padding_id};
use meshwright_store::checkpoint::hf::{DerivedTensor, HfKeys, KeyResult, TensorRole};
use meshwright_store::family::{ConfigKeys, SizeFlag};

/// The name of the embedding of both stacks.
const SHARED: &str = "shared.weight";

/// The sizes and constants of a T5 ([Raffel et al. 2020](https://arxiv.org/abs/1910.10683)) of the first kind, with a
/// ReLU and a tied head, or of version 1.1 ([Shazeer 2020](https://arxiv.org/abs/2002.05202)), with gated MLPs and a
/// head of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct T5Config {
    /// `d_model`: width of the residual streams.
    pub hidden: usize,
    /// `d_ff`: width of the feed-forwards.
    pub ffn: usize,
    /// `num_layers`: layers of the encoder.
    pub encoder_layers: usize,
    /// `num_decoder_layers`: layers of the decoder; by default as many as of the encoder.
    pub decoder_layers: usize,
    /// `num_heads`: attention heads.
    pub heads: usize,
    /// `d_kv`: width of one head, which need not be `hidden / heads`.
    pub head_dim: usize,
    /// `vocab_size`: number of token ids.
    pub vocab: usize,
    /// `relative_attention_num_buckets`: buckets of distances; by default 32.
    pub buckets: usize,
    /// `relative_attention_max_distance`: distance from which on all have one bucket; by default 128.
    pub max_distance: usize,
    /// `feed_forward_proj`: true for `gated-gelu`, false for `relu`.
    pub gated: bool,
    /// `tie_word_embeddings`: the head is the embedding; by default true.
    pub tied: bool,
    /// `scale_decoder_outputs`: the output of the decoder is multiplied by `hidden^-0.5` before the head; by default if
    /// `tie_word_embeddings` is not false.
    pub scaled: bool,
    /// `dropout_rate`: on embeddings, inside of MLPs, on additions to the streams, and at the ends of both stacks; by
    /// default 0.1. It is that of attention weights, too.
    pub dropout: f64,
    /// `layer_norm_epsilon`: added to the mean square in RMSNorm; by default 1e-6.
    pub norm_eps: f64,
    /// `initializer_factor`: a factor of all initial values; by default 1.
    pub init_factor: f64,
    /// `pad_token_id`: the token behind the end of a source, and the one that the decoder reads behind ignored targets;
    /// by default 0.
    pub padding: usize,
    /// `decoder_start_token_id`: the token that the decoder reads first; by default that for padding.
    pub start: usize,
    /// `eos_token_id`, as in the file: the token at the end of sources and targets.
    pub eos: Value,
}

/// A model without sizes.
impl Default for T5Config {
    fn default() -> T5Config {
        T5Config {
            hidden: 1,
            ffn: 1,
            encoder_layers: 1,
            decoder_layers: 1,
            heads: 1,
            head_dim: 1,
            vocab: 1,
            buckets: 32,
            max_distance: 128,
            gated: false,
            tied: true,
            scaled: true,
            dropout: 0.0,
            norm_eps: 1e-6,
            init_factor: 1.0,
            padding: 0,
            start: 0,
            eos: Value::from(1),
        }
    }
}

impl ConfigKeys for T5Config {
    const MODEL_TYPES: &'static [&'static str] = &["t5"];

    fn architecture(&self) -> Option<&'static str> {
        Some("T5ForConditionalGeneration")
    }

    fn keys(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        // Of another task, and of files of the first version: positions have no table.
        keys.ignore(&["classifier_dropout", "n_positions", "output_past"]);
        keys.only_switch("is_encoder_decoder", true)?;
        keys.only_switch("is_decoder", false)?;
        keys.write("is_encoder_decoder", true);
        keys.size(SizeFlag::HIDDEN, "d_model", &mut self.hidden)?;
        keys.size(SizeFlag::HEADS, "num_heads", &mut self.heads)?;
        self.name_head_dim(keys)?;
        keys.tied(&mut self.tied, true)?;
        self.name_output_scale(keys)?;
        self.name_activation(keys)?;
        let ffn = if self.gated { default_ffn(self.hidden) } else { 4 * self.hidden };
        keys.size_or_new(SizeFlag::FFN, "d_ff", &mut self.ffn, ffn)?;
        keys.size(SizeFlag::LAYERS, "num_layers", &mut self.encoder_layers)?;
        let layers = self.encoder_layers;
        keys.size_or(SizeFlag::LAYERS, "num_decoder_layers", &mut self.decoder_layers, layers)?;
        keys.size(SizeFlag::VOCAB, "vocab_size", &mut self.vocab)?;
        self.name_buckets(keys)?;
        keys.number("layer_norm_epsilon", &mut self.norm_eps, 1e-6)?;
        keys.number("initializer_factor", &mut self.init_factor, 1.0)?;
        self.name_dropout(keys)?;
        padding_id(keys, &mut self.padding, self.vocab, 0)?;
        known_id(keys, "decoder_start_token_id", &mut self.start, self.vocab, self.padding)?;
        end_id(keys, &mut self.eos, 1)?;
        if keys.is_new() {
            self.eos = Value::from(1);
        }
        Ok(())
    }

    /// Some folders store the embedding for each stack, too, and the first published ones a table of biases that
    /// nothing reads.
    fn role_of<'a>(&self, stored: &'a str) -> TensorRole<'a> {
        match stored {
            "encoder.embed_tokens.weight" | "decoder.embed_tokens.weight" => {
                TensorRole::Derived(DerivedTensor::CopyOf(SHARED))
            }
            "lm_head.weight" if self.tied => TensorRole::Derived(DerivedTensor::TiedTo(SHARED)),
            "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight" => {
                TensorRole::Unused
            }
            _ => TensorRole::Model(Cow::Borrowed(stored)),
        }
    }

    fn is_name(&self, stored: &str) -> bool {
        ["shared.", "encoder.", "decoder.", "lm_head."].iter().any(|part| stored.starts_with(part))
    }

    fn untie_head(&mut self) -> bool {
        self.tied = false;
        true
    }
}

impl T5Config {
    /// Names the width of a head: in a new model `hidden / heads`.
    fn name_head_dim(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        let T5Config { hidden, heads, .. } = *self;
        keys.require(!keys.is_new() || hidden.is_multiple_of(heads), || {
            format!("--heads: {heads} does not divide --hidden {hidden}")
        })?;
        let of_new = hidden / heads.max(1);
        keys.field("d_kv", &mut self.head_dim, of_new, |settings| settings.required("d_kv"))
    }

    /// Names the factor before the head, which files of `transformers` before version 5 tell by the tie only.
    fn name_output_scale(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        const KEY: &str = "scale_decoder_outputs";
        let tied = self.tied;
        let Some(settings) = keys.settings() else {
            if keys.is_new() {
                self.scaled = tied;
            }
            keys.list(&[KEY]);
            if self.scaled != tied {
                keys.write(KEY, self.scaled);
            }
            return Ok(());
        };
        self.scaled = settings.switch(KEY)?.unwrap_or(tied);
        Ok(())
    }

    /// Names the activation. A new model with a tied head has a ReLU, as the first version.
    fn name_activation(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        const KEY: &str = "feed_forward_proj";
        const RELU: &str = "relu";
        const GATED: &str = "gated-gelu";
        keys.list(&[KEY, "dense_act_fn", "is_gated_act"]);
        if keys.is_new() {
            self.gated = !self.tied;
        }
        if let Some(settings) = keys.settings() {
            settings.expect_text(KEY, &[RELU, GATED])?;
            self.gated = settings.get(KEY).is_some_and(|value| *value == GATED);
            // Both follow from the first key, and `transformers` writes them.
            settings
                .expect_text("dense_act_fn", if self.gated { &["gelu_new"] } else { &[RELU] })?;
            keys.only_switch("is_gated_act", self.gated)?;
        }
        keys.write(KEY, if self.gated { GATED } else { RELU });
        Ok(())
    }

    /// Names the buckets of distances. One half of them has single distances.
    fn name_buckets(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        const BUCKETS: &str = "relative_attention_num_buckets";
        const MAX: &str = "relative_attention_max_distance";
        keys.count(BUCKETS, &mut self.buckets, 32)?;
        keys.count(MAX, &mut self.max_distance, 128)?;
        let T5Config { buckets, max_distance, .. } = *self;
        keys.require(buckets >= 4 && buckets.is_multiple_of(2), || {
            format!("{BUCKETS} is {buckets}; it must be an even number of at least 4")
        })?;
        keys.require(max_distance > buckets / 2, || {
            format!(
                "{MAX} is {max_distance}, but half of the {buckets} buckets ({BUCKETS}) have single distances; it must \
                 be more than {}",
                buckets / 2
            )
        })
    }

    fn name_dropout(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        const KEY: &str = "dropout_rate";
        let of_file = if keys.is_new() { 0.0 } else { 0.1 };
        keys.number(KEY, &mut self.dropout, of_file)?;
        let rate = self.dropout;
        keys.require(rate < 1.0, || format!("{KEY} must be below 1, not {rate}"))
    }
}
