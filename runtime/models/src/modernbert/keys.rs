//! Keys of the `config.json` of a ModernBERT, and names of its tensors.

use super::rope::rope_keys;
use super::{ModernBertConfig, Pooling};
use crate::decoder_keys::layer_types;
use crate::encoders::{EncoderUse, HeadKind, known_classes};
use meshwright_store::checkpoint::hf::{DerivedTensor, HfKeys, KeyResult, TensorRole};
use meshwright_store::family::{ConfigKeys, SizeFlag};

/// Classes of `transformers` whose folders hold the encoder.
const CLASSES: [&str; 4] = [
    "ModernBertModel",
    "ModernBertForMaskedLM",
    "ModernBertForSequenceClassification",
    "ModernBertForTokenClassification",
];

/// The embedding, which the head of a masked language model shares.
const EMBEDDING: &str = "model.embeddings.tok_embeddings.weight";

/// Layers after which one without a window follows, in files from before version 5 of `transformers`.
const EVERY: &str = "global_attn_every_n_layers";

impl<U: EncoderUse> ConfigKeys for ModernBertConfig<U> {
    const MODEL_TYPES: &'static [&'static str] = &["modernbert"];

    fn architecture(&self) -> Option<&'static str> {
        Some(match U::KIND {
            HeadKind::MaskedTokens => "ModernBertForMaskedLM",
            HeadKind::Sequence => "ModernBertForSequenceClassification",
            HeadKind::Token => "ModernBertForTokenClassification",
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
        let head_dim = self.head_dim();
        keys.require(head_dim.is_multiple_of(2), || {
            let given = if keys.is_new() { "--heads:" } else { "num_attention_heads" };
            format!(
                "{given} {heads} makes heads {head_dim} wide; rotary positions need an even width"
            )
        })?;
        keys.size_or_new(SizeFlag::FFN, "intermediate_size", &mut self.ffn, 3 * hidden / 2)?;
        keys.size(SizeFlag::LAYERS, "num_hidden_layers", &mut self.layers)?;
        keys.size(SizeFlag::VOCAB, "vocab_size", &mut self.vocab)?;
        keys.number("norm_eps", &mut self.norm_eps, 1e-5)?;
        keys.max_positions(&mut self.max_positions, 8192)?;
        let ropes = [&mut self.rope, &mut self.local_rope];
        rope_keys(keys, ropes, head_dim, self.max_positions)?;
        self.window_keys(keys)?;
        keys.switch("attention_bias", &mut self.attention_bias, false)?;
        keys.switch("mlp_bias", &mut self.mlp_bias, false)?;
        keys.switch("norm_bias", &mut self.norm_bias, false)?;
        keys.switch("decoder_bias", &mut self.decoder_bias, true)?;
        keys.switch("classifier_bias", &mut self.classifier_bias, false)?;
        self.pooling_key(keys)?;
        keys.tied(&mut self.tied, true)?;
        // A new model has the default, whose head is tied without a flag.
        self.tied |= keys.is_new();
        keys.padding(&mut self.padding, self.vocab, Some(50_283))?;
        if U::KIND != HeadKind::MaskedTokens {
            self.labels.keys(keys, U::KIND == HeadKind::Sequence)?;
        }
        keys.token("bos_token_id", &mut self.bos)?;
        keys.token("eos_token_id", &mut self.eos)
    }

    /// Folders of a bare `ModernBertModel` omit the prefix `model.`.
    fn role_of<'a>(&self, stored: &'a str) -> TensorRole<'a> {
        let is_masked = U::KIND == HeadKind::MaskedTokens;
        if is_masked && self.tied && stored == "decoder.weight" {
            return TensorRole::Derived(DerivedTensor::TiedTo(EMBEDDING));
        }
        let is_of_other = |start: &str| match start {
            "decoder." => !is_masked,
            _ => is_masked,
        };
        let mut heads = ["decoder.", "classifier."].into_iter();
        if heads.any(|start| stored.starts_with(start) && is_of_other(start)) {
            return TensorRole::Unused;
        }
        TensorRole::Model(if is_bare_name(stored) {
            format!("model.{stored}").into()
        } else {
            stored.into()
        })
    }

    fn is_name(&self, stored: &str) -> bool {
        let heads = ["head.", "decoder.", "classifier."];
        let is_of_head = heads.iter().any(|part| stored.starts_with(part));
        is_of_head || is_bare_name(stored.strip_prefix("model.").unwrap_or(stored))
    }

    fn new_tensors(&self) -> &'static [&'static str] {
        match U::KIND {
            HeadKind::MaskedTokens => &["head.", "decoder.bias"],
            HeadKind::Sequence | HeadKind::Token => &["head.", "classifier."],
        }
    }

    fn untie_head(&mut self) -> bool {
        self.tied = false;
        true
    }
}

impl<U> ModernBertConfig<U> {
    /// Names the windows of layers.
    fn window_keys(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        keys.count("local_attention", &mut self.local_attention, 128)?;
        keys.list(&[EVERY]);
        let every = keys.settings().map(|settings| settings.count(EVERY)).transpose()?.flatten();
        let of_pattern = |every: usize| move |layer: usize| !layer.is_multiple_of(every);
        layer_types(keys, &mut self.slides, self.layers, of_pattern(every.unwrap_or(3)))?;
        let has_pattern = |every: &usize| {
            (0..self.layers).map(of_pattern(*every)).eq(self.slides.iter().copied())
        };
        if let Some(every) = (1..=self.layers.max(3)).find(has_pattern) {
            keys.write(EVERY, every);
        }
        Ok(())
    }

    fn pooling_key(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        const KEY: &str = "classifier_pooling";
        let words = [("cls", Pooling::First), ("mean", Pooling::Mean)];
        keys.list(&[KEY]);
        if let Some(settings) = keys.settings() {
            settings.expect_text(KEY, &words.map(|(word, _)| word))?;
            let found = settings.text(KEY)?;
            let found = words.into_iter().find(|(word, _)| Some(*word) == found);
            self.pooling = found.map(|(_, pooling)| pooling).unwrap_or_default();
        }
        for (word, pooling) in words {
            if pooling == self.pooling {
                keys.write(KEY, word);
            }
        }
        Ok(())
    }
}

/// Names keys of other ModernBERTs whose settings are not implemented here, and refuses other values. Ignoring them
/// would change the results.
fn name_fixed_keys(keys: &mut HfKeys<'_>) -> KeyResult {
    // How losses and attentions are computed, how weights begin, and keys of BERT that published files have.
    keys.ignore(&["sparse_prediction", "sparse_pred_ignore_index", "deterministic_flash_attn"]);
    keys.ignore(&["reference_compile", "repad_logits_with_grad", "initializer_cutoff_factor"]);
    keys.ignore(&["layer_norm_eps", "position_embedding_type"]);
    for key in ["hidden_activation", "classifier_activation"] {
        keys.only(key, &["gelu"])?;
    }
    let rates = ["attention_dropout", "embedding_dropout", "mlp_dropout", "classifier_dropout"];
    rates.into_iter().try_for_each(|rate| keys.no_rate(rate))
}

/// Returns true for names of tensors of the encoder.
fn is_bare_name(stored: &str) -> bool {
    ["embeddings.", "layers.", "final_norm."].iter().any(|part| stored.starts_with(part))
}
