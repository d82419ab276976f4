//! The keys of a Whisper.

use std::borrow::Cow;

use meshwright_store::checkpoint::hf::{DerivedTensor, HfKeys, KeyResult, TensorRole};
use meshwright_store::family::{ConfigKeys, SizeFlag};

use super::WhisperConfig;
use crate::token_keys::{end_id, known_id};

impl ConfigKeys for WhisperConfig {
    const MODEL_TYPES: &'static [&'static str] = &["whisper"];

    fn architecture(&self) -> Option<&'static str> {
        Some("WhisperForConditionalGeneration")
    }

    fn keys(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        name_fixed_keys(keys)?;
        keys.size(SizeFlag::HIDDEN, "d_model", &mut self.hidden)?;
        let hidden = self.hidden;
        // The first half are sines, the other one cosines.
        keys.require(hidden.is_multiple_of(2) && hidden > 2, || {
            format!("d_model is {hidden}; positions of the encoder need an even width above 2")
        })?;
        self.name_stacks(keys)?;
        keys.size(SizeFlag::VOCAB, "vocab_size", &mut self.vocab)?;
        keys.count("num_mel_bins", &mut self.mels, 80)?;
        keys.count("max_source_positions", &mut self.source_positions, 1500)?;
        keys.position_table("max_target_positions", &mut self.target_positions, 448)?;
        keys.number("init_std", &mut self.init_std, 0.02)?;
        keys.padding(&mut self.padding, self.vocab, Some(50_256))?;
        let start = if keys.is_new() { 0 } else { 50_257 };
        known_id(keys, "decoder_start_token_id", &mut self.start, self.vocab, start)?;
        keys.token("bos_token_id", &mut self.bos)?;
        end_id(keys, &mut self.eos, 50_256)
    }

    /// Folders of a bare `WhisperModel` omit the prefix `model.`, and some store the head, which is tied to the
    /// embedding.
    fn role_of<'a>(&self, stored: &'a str) -> TensorRole<'a> {
        if stored == "proj_out.weight" {
            TensorRole::Derived(DerivedTensor::TiedTo("model.decoder.embed_tokens.weight"))
        } else if stored.starts_with("model.") {
            TensorRole::Model(Cow::Borrowed(stored))
        } else {
            TensorRole::Model(Cow::Owned(format!("model.{stored}")))
        }
    }

    fn is_name(&self, stored: &str) -> bool {
        let part = stored.strip_prefix("model.").unwrap_or(stored);
        ["encoder.", "decoder."].iter().any(|name| part.starts_with(name))
            || stored.starts_with("proj_out.")
    }
}

impl WhisperConfig {
    /// Names the sizes of both stacks. In a new model they are alike.
    fn name_stacks(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        let hidden = self.hidden;
        for (key, layers) in [
            ("encoder_layers", &mut self.encoder_layers),
            ("decoder_layers", &mut self.decoder_layers),
        ] {
            keys.size(SizeFlag::LAYERS, key, layers)?;
        }
        for (key, heads) in [
            ("encoder_attention_heads", &mut self.encoder_heads),
            ("decoder_attention_heads", &mut self.decoder_heads),
        ] {
            keys.size(SizeFlag::HEADS, key, heads)?;
            let heads = *heads;
            keys.require(hidden.is_multiple_of(heads), || {
                format!("{key} {heads} does not divide d_model {hidden}")
            })?;
        }
        for (key, ffn) in
            [("encoder_ffn_dim", &mut self.encoder_ffn), ("decoder_ffn_dim", &mut self.decoder_ffn)]
        {
            keys.size_or_new(SizeFlag::FFN, key, ffn, 4 * hidden)?;
        }
        Ok(())
    }
}

/// Names keys whose other values are not implemented here, and keys that change nothing.
fn name_fixed_keys(keys: &mut HfKeys<'_>) -> KeyResult {
    // Of another task, of generation, and of masks of the spectrogram, which are off.
    keys.ignore(&[
        "classifier_proj_size",
        "use_weighted_layer_sum",
        "median_filter_width",
        "forced_decoder_ids",
        "num_hidden_layers",
        "mask_time_prob",
        "mask_time_length",
        "mask_time_min_masks",
        "mask_feature_prob",
        "mask_feature_length",
        "mask_feature_min_masks",
    ]);
    keys.only("activation_function", &["gelu"])?;
    keys.always_tied()?;
    keys.only_switch("is_encoder_decoder", true)?;
    keys.write("is_encoder_decoder", true);
    keys.only_switch("scale_embedding", false)?;
    keys.only_switch("apply_spec_augment", false)?;
    for rate in [
        "dropout",
        "attention_dropout",
        "activation_dropout",
        "encoder_layerdrop",
        "decoder_layerdrop",
    ] {
        keys.no_rate(rate)?;
    }
    Ok(())
}
