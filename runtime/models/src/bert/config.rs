//! `config.json` of a BERT.

use std::borrow::Cow;
use std::marker::PhantomData;

use meshwright::prelude::*;
use serde_json::Value;

use super::model::{Classes, Ffn, HeadDim, Heads, Hidden, Positions, TokenTypes, Vocab};
use crate::encoders::{ClassLabels, EncoderUse, HeadKind, MaskedTokens, known_classes};
use meshwright_store::checkpoint::hf::{DerivedTensor, HfKeys, KeyResult, TensorRole};
use meshwright_store::family::{ConfigKeys, SizeFlag};

/// Classes of `transformers` whose folders hold the encoder.
const CLASSES: [&str; 5] = [
    "BertModel",
    "BertForPreTraining",
    "BertForMaskedLM",
    "BertForSequenceClassification",
    "BertForTokenClassification",
];

/// The embedding, which the head of a masked language model shares.
const EMBEDDING: &str = "bert.embeddings.word_embeddings.weight";

/// The sizes and constants of a BERT ([Devlin et al. 2018](https://arxiv.org/abs/1810.04805)): learned positions, types
/// of tokens, norms after each branch, biases, exact GELU, and attention to both sides. `U` is its use.
#[derive(Debug, Clone, PartialEq)]
pub struct BertConfig<U = MaskedTokens> {
    /// `hidden_size`: width of the residual stream.
    pub hidden: usize,
    /// `intermediate_size`: width of the feed-forward; in a new model four times `hidden_size`.
    pub ffn: usize,
    /// `num_hidden_layers`: transformer blocks.
    pub layers: usize,
    /// `num_attention_heads`: attention heads, each `hidden / heads` wide.
    pub heads: usize,
    /// `vocab_size`: number of token ids.
    pub vocab: usize,
    /// `max_position_embeddings`: rows of the table of positions, the longest text.
    pub positions: usize,
    /// `type_vocab_size`: types of tokens.
    pub token_types: usize,
    /// `layer_norm_eps`: added to the variance in LayerNorm; by default 1e-12.
    pub norm_eps: f64,
    /// Rates of dropout.
    pub dropout: BertDropout,
    /// `pad_token_id`: the row of the embedding that look-ups do not train; by default 0.
    pub padding: Option<usize>,
    /// `id2label` and `problem_type` of a classifier.
    pub labels: ClassLabels,
    /// `bos_token_id`, as in the file.
    pub bos: Value,
    /// `eos_token_id`, as in the file.
    pub eos: Value,
    /// The use.
    pub of_use: PhantomData<U>,
}

/// Dropout rates of `config.json`. The two that are missing there are 0.1, as in transformers.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BertDropout {
    /// `hidden_dropout_prob`: after the embeddings, and on additions to the residual stream.
    pub hidden: f64,
    /// `attention_probs_dropout_prob`: on attention weights.
    pub attention: f64,
    /// `classifier_dropout`: before the classifier; `None` is the rate of the stream.
    pub classifier: Option<f64>,
}

impl BertDropout {
    /// Returns the rate before the classifier.
    pub fn of_classifier(&self) -> f64 {
        self.classifier.unwrap_or(self.hidden)
    }

    fn keys(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        let of_file = if keys.is_new() { 0.0 } else { 0.1 };
        keys.number("hidden_dropout_prob", &mut self.hidden, of_file)?;
        keys.number("attention_probs_dropout_prob", &mut self.attention, of_file)?;
        keys.optional_number("classifier_dropout", &mut self.classifier, None)?;
        let rates = [
            ("hidden_dropout_prob", self.hidden),
            ("attention_probs_dropout_prob", self.attention),
            ("classifier_dropout", self.classifier.unwrap_or_default()),
        ];
        for (key, rate) in rates {
            keys.require(rate < 1.0, || format!("{key} must be below 1, not {rate}"))?;
        }
        Ok(())
    }
}

/// A model without sizes.
impl<U> Default for BertConfig<U> {
    fn default() -> BertConfig<U> {
        BertConfig {
            hidden: 1,
            ffn: 1,
            layers: 1,
            heads: 1,
            vocab: 1,
            positions: 1,
            token_types: 2,
            norm_eps: 1e-12,
            dropout: BertDropout::default(),
            padding: None,
            labels: ClassLabels::default(),
            bos: Value::Null,
            eos: Value::Null,
            of_use: PhantomData,
        }
    }
}

impl<U> BertConfig<U> {
    /// Returns the width of one head.
    pub fn head_dim(&self) -> usize {
        self.hidden / self.heads
    }

    /// Returns the sizes of the encoder.
    pub fn backbone_sizes(&self) -> Sizes {
        let mut sizes = Sizes::new()
            .with(Positions, self.positions)
            .with(TokenTypes, self.token_types)
            .with(Hidden, self.hidden)
            .with(Ffn, self.ffn)
            .with(Heads, self.heads)
            .with(HeadDim, self.head_dim())
            .with(Vocab, self.vocab)
            .with(Layers, self.layers)
            .with_optional("bias", true);
        if let Some(row) = self.padding {
            sizes = sizes.with_padding(Vocab, row);
        }
        sizes.norm_eps = self.norm_eps as f32;
        sizes.attention.dropout = self.dropout.attention as f32;
        let rate = self.dropout.hidden as f32;
        ["embed.dropout", "attn.dropout", "mlp.dropout"]
            .into_iter()
            .fold(sizes, |sizes, field| sizes.with_dropout(field, rate))
    }

    /// Returns the sizes of a classifier, whose field `dropout` is before its weight.
    pub fn classifier_sizes(&self, dropout: &str) -> Sizes {
        let sizes = self.backbone_sizes().with(Classes, self.labels.count());
        let rate = self.dropout.of_classifier() as f32;
        sizes.with_optional("classifier.bias", true).with_dropout(dropout, rate)
    }
}

impl<U: EncoderUse> ConfigKeys for BertConfig<U> {
    const MODEL_TYPES: &'static [&'static str] = &["bert"];

    fn architecture(&self) -> Option<&'static str> {
        Some(match U::KIND {
            HeadKind::MaskedTokens => "BertForMaskedLM",
            HeadKind::Sequence => "BertForSequenceClassification",
            HeadKind::Token => "BertForTokenClassification",
        })
    }

    fn keys(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        known_classes(keys, &CLASSES);
        name_fixed_keys(keys)?;
        keys.size(SizeFlag::HIDDEN, "hidden_size", &mut self.hidden)?;
        keys.size(SizeFlag::HEADS, "num_attention_heads", &mut self.heads)?;
        let (hidden, heads) = (self.hidden, self.heads);
        keys.require(hidden.is_multiple_of(heads), || {
            format!("num_attention_heads {heads} does not divide hidden_size {hidden}")
        })?;
        keys.size_or_new(SizeFlag::FFN, "intermediate_size", &mut self.ffn, 4 * hidden)?;
        keys.size(SizeFlag::LAYERS, "num_hidden_layers", &mut self.layers)?;
        keys.size(SizeFlag::VOCAB, "vocab_size", &mut self.vocab)?;
        keys.position_table("max_position_embeddings", &mut self.positions, 512)?;
        keys.count("type_vocab_size", &mut self.token_types, 2)?;
        keys.number("layer_norm_eps", &mut self.norm_eps, 1e-12)?;
        self.dropout.keys(keys)?;
        keys.padding(&mut self.padding, self.vocab, Some(0))?;
        if U::KIND != HeadKind::MaskedTokens {
            self.labels.keys(keys, U::KIND == HeadKind::Sequence)?;
        }
        keys.token("bos_token_id", &mut self.bos)?;
        keys.token("eos_token_id", &mut self.eos)
    }

    /// Folders of a bare `BertModel` omit the prefix `bert.`; old ones name the parameters of norms `gamma` and `beta`,
    /// and store the numbers of positions.
    fn role_of<'a>(&self, stored: &'a str) -> TensorRole<'a> {
        let mut name = Cow::Borrowed(stored);
        for (old, new) in [(".gamma", ".weight"), (".beta", ".bias")] {
            if let Some(start) = stored.strip_suffix(old) {
                name = Cow::Owned(format!("{start}{new}"));
            }
        }
        if is_bare_name(stored) {
            name = Cow::Owned(format!("bert.{name}"));
        }
        let is_used = match &*name {
            "bert.embeddings.position_ids" => false,
            "cls.predictions.decoder.weight" if U::KIND == HeadKind::MaskedTokens => {
                return TensorRole::Derived(DerivedTensor::TiedTo(EMBEDDING));
            }
            "cls.predictions.decoder.bias" if U::KIND == HeadKind::MaskedTokens => {
                return TensorRole::Derived(DerivedTensor::TiedTo("cls.predictions.bias"));
            }
            name if name.starts_with("cls.seq_relationship.") => false,
            name if name.starts_with("cls.") => U::KIND == HeadKind::MaskedTokens,
            name if name.starts_with("bert.pooler.") => U::KIND == HeadKind::Sequence,
            name if name.starts_with("classifier.") => U::KIND != HeadKind::MaskedTokens,
            _ => true,
        };
        if is_used { TensorRole::Model(name) } else { TensorRole::Unused }
    }

    fn is_name(&self, stored: &str) -> bool {
        let is_of_head = ["cls.", "classifier."].iter().any(|part| stored.starts_with(part));
        is_of_head || is_bare_name(stored.strip_prefix("bert.").unwrap_or(stored))
    }

    fn new_tensors(&self) -> &'static [&'static str] {
        match U::KIND {
            HeadKind::MaskedTokens => &["cls.predictions."],
            HeadKind::Sequence => &["bert.pooler.", "classifier."],
            HeadKind::Token => &["classifier."],
        }
    }
}

/// Names keys of other BERTs whose settings are not implemented here, and refuses other values. Ignoring them would
/// change the results.
fn name_fixed_keys(keys: &mut HfKeys<'_>) -> KeyResult {
    // Of an older library, in which they described the layer on the first token.
    keys.ignore(&["directionality", "pooler_fc_size", "pooler_num_attention_heads"]);
    keys.ignore(&["pooler_num_fc_layers", "pooler_size_per_head", "pooler_type"]);
    keys.only("hidden_act", &["gelu"])?;
    keys.always_tied()?;
    for key in ["is_decoder", "add_cross_attention"] {
        keys.only_switch(key, false)?;
    }
    keys.list(&["position_embedding_type"]);
    match keys.settings() {
        Some(settings) => settings.expect_text("position_embedding_type", &["absolute"]),
        None => Ok(()),
    }
}

/// Returns true for names of tensors of the encoder.
fn is_bare_name(stored: &str) -> bool {
    ["embeddings.", "encoder.", "pooler."].iter().any(|part| stored.starts_with(part))
}
