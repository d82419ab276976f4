//! Keys of the `config.json` of a Gemma, and names of its tensors.

use serde_json::Map;

use super::rope::{GLOBAL_THETA, LOCAL_THETA, read_ropes, write_ropes};
use super::{GemmaConfig, GemmaKind};
use crate::decoder_keys::{
    AttentionDefaults, AttentionFields, default_ffn, is_tensor_name, layer_types,
    no_partial_rotation, require_window, tensor_role,
};
use meshwright_core::rotary::{RopeParameters, RopeScaling};
use meshwright_store::checkpoint::hf::{DerivedTensor, HfKeys, KeyResult, TensorRole};
use meshwright_store::family::{ConfigKeys, SizeFlag};

/// The attention of a file without its sizes.
const ATTENTION: AttentionDefaults =
    AttentionDefaults { heads: Some(8), kv_heads: Some(4), head_dim: Some(256) };

/// The object of a `gemma3` with the keys of its text model.
const TEXT_CONFIG: &str = "text_config";

/// Beginning of the names of a text model in a `gemma3`.
const PREFIX: &str = "language_model.";

/// The object of a `gemma3` with the keys of its vision tower.
const VISION_CONFIG: &str = "vision_config";

/// Beginnings of the names of other parts of a `gemma3`.
const VISION: [&str; 2] = ["vision_tower.", "multi_modal_projector."];

impl GemmaConfig {
    /// Names the keys of the text model.
    fn text_keys(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        let (is_new, is_third) = (keys.is_new(), self.is_third());
        // Another name of the window, how keys and values are kept while a text is continued, and the activation before
        // `hidden_activation` had replaced it.
        keys.ignore(&["sliding_window_size", "cache_implementation", "hidden_act"]);
        keys.only("hidden_activation", &["gelu_pytorch_tanh", "gelu_new"])?;
        keys.only_switch("use_bidirectional_attention", false)?;
        keys.no_rate("attention_dropout")?;
        keys.size_or(SizeFlag::HIDDEN, "hidden_size", &mut self.hidden, 2304)?;
        keys.size_or(SizeFlag::LAYERS, "num_hidden_layers", &mut self.layers, 26)?;
        let (heads, kv_heads) = (&mut self.heads, &mut self.kv_heads);
        let fields = AttentionFields { heads, kv_heads, head_dim: &mut self.head_dim };
        fields.keys(keys, self.hidden, ATTENTION)?;
        let ffn = if is_new { default_ffn(self.hidden) } else { 9216 };
        keys.size_or(SizeFlag::FFN, "intermediate_size", &mut self.ffn, ffn)?;
        let vocab = if is_third { 262_208 } else { 256_000 };
        keys.size_or(SizeFlag::VOCAB, "vocab_size", &mut self.vocab, vocab)?;
        keys.number("rms_norm_eps", &mut self.norm_eps, 1e-6)?;
        keys.switch("attention_bias", &mut self.biases, false)?;
        self.score_keys(keys)?;
        self.layer_keys(keys)?;
        keys.max_positions(&mut self.max_positions, if is_third { 131_072 } else { 8192 })?;
        self.rope_keys(keys)?;
        keys.tied(&mut self.tied, true)?;
        if is_new {
            // As in all published ones.
            self.tied = true;
        }
        keys.padding(&mut self.padding, self.vocab, Some(0))?;
        keys.token("bos_token_id", &mut self.bos)?;
        keys.token("eos_token_id", &mut self.eos)
    }

    /// Names the scale of scores, and soft caps.
    fn score_keys(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        const SCALAR: &str = "query_pre_attn_scalar";
        let is_third = self.is_third();
        let default = if keys.is_new() { self.head_dim as f64 } else { 256.0 };
        keys.number(SCALAR, &mut self.query_scalar, default)?;
        keys.require(self.query_scalar > 0.0, || format!("{SCALAR} must be above 0, not 0"))?;
        for (key, cap, default) in [
            ("attn_logit_softcapping", &mut self.attention_cap, 50.0),
            ("final_logit_softcapping", &mut self.logit_cap, 30.0),
        ] {
            keys.optional_number(key, cap, (!is_third).then_some(default))?;
            keys.require(*cap != Some(0.0), || {
                format!("{key} must be a number above 0, not 0; null leaves out the cap")
            })?;
        }
        if let Some(cap) = self.attention_cap.filter(|_| is_third) {
            keys.warn(format!(
                "attn_logit_softcapping is {cap}: transformers does not apply it in a gemma3, and neither does this \
                 program"
            ));
        }
        Ok(())
    }

    /// Names windows and kinds of layers.
    fn layer_keys(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        keys.optional_count("sliding_window", &mut self.window, Some(4096))?;
        let mut pattern = if self.is_third() { 6 } else { 2 };
        if self.is_third() {
            keys.list(&["sliding_window_pattern"]);
        }
        if let Some(settings) = keys.settings().filter(|_| self.is_third()) {
            pattern = settings.count("sliding_window_pattern")?.unwrap_or(pattern);
            // `transformers` writes it, and does not read it.
            settings.ignore(&["_sliding_window_pattern"]);
        }
        let slides = |layer: usize| !(layer + 1).is_multiple_of(pattern);
        layer_types(keys, &mut self.slides, self.layers, slides)?;
        require_window(keys, self.window, &self.slides)
    }

    /// Names rotary parameters.
    fn rope_keys(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        let (head_dim, max_positions) = (self.head_dim, self.max_positions);
        if !self.is_third() {
            keys.rope(&mut self.rope, 10_000.0, head_dim, max_positions)?;
            return no_partial_rotation(keys, &self.rope);
        }
        keys.list(&["rope_parameters", "rope_scaling", "rope_theta", "rope_local_base_freq"]);
        if let Some(settings) = keys.settings() {
            [self.rope, self.local_rope] = read_ropes(settings, head_dim, max_positions)?;
        } else if keys.is_new() {
            self.rope = RopeParameters::with_theta(GLOBAL_THETA);
            self.local_rope = RopeParameters::with_theta(LOCAL_THETA);
        }
        let ropes = [&self.rope, &self.local_rope];
        let mut written = Map::new();
        write_ropes(ropes, &mut written);
        for (key, value) in written {
            keys.write(&key, value);
        }
        for rope in ropes {
            no_partial_rotation(keys, rope)?;
            // Frequencies depend on the length that the model was made for.
            if let RopeScaling::Dynamic { trained_positions, .. } = rope.scaling {
                keys.write("max_position_embeddings", trained_positions);
            }
        }
        Ok(())
    }
}

impl ConfigKeys for GemmaConfig {
    const MODEL_TYPES: &'static [&'static str] = &["gemma2", "gemma3_text", "gemma3"];
    const OTHER_PARTS: &'static [&'static str] = &[VISION_CONFIG];

    fn new_of(model_type: &'static str) -> GemmaConfig {
        let kind = match model_type {
            "gemma3_text" => GemmaKind::Gemma3Text,
            "gemma3" => GemmaKind::Gemma3,
            _ => GemmaKind::Gemma2,
        };
        GemmaConfig { kind, ..GemmaConfig::default() }
    }

    fn family(&self) -> &'static str {
        match self.kind {
            GemmaKind::Gemma2 => "gemma2",
            GemmaKind::Gemma3Text => "gemma3_text",
            GemmaKind::Gemma3 => "gemma3",
        }
    }

    fn architecture(&self) -> Option<&'static str> {
        Some(match self.kind {
            GemmaKind::Gemma2 => "Gemma2ForCausalLM",
            GemmaKind::Gemma3Text => "Gemma3ForCausalLM",
            GemmaKind::Gemma3 => "Gemma3ForConditionalGeneration",
        })
    }

    fn keys(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        if self.kind != GemmaKind::Gemma3 {
            return self.text_keys(keys);
        }
        // Of the placeholders of images.
        keys.ignore(&["mm_tokens_per_image", "image_token_index"]);
        keys.ignore(&["boi_token_index", "eoi_token_index", "pad_token_id", "bos_token_id"]);
        if keys.settings().is_some_and(|settings| settings.get(VISION_CONFIG).is_some()) {
            keys.warn(format!("{VISION_CONFIG} is left out: the text model alone is trained"));
        }
        keys.only_switch("tie_word_embeddings", true)?;
        keys.within(TEXT_CONFIG, |keys| {
            keys.ignore(&["architectures"]);
            keys.only("model_type", &["gemma3_text"])?;
            self.text_keys(keys)?;
            keys.require(self.tied, || {
                "tie_word_embeddings is false; only true is supported in a gemma3".into()
            })
        })?;
        let eos = keys.settings().and_then(|settings| settings.get("eos_token_id"));
        if let Some(eos) = eos {
            self.eos = eos.clone();
        }
        Ok(())
    }

    fn role_of<'a>(&self, stored: &'a str) -> TensorRole<'a> {
        if self.kind != GemmaKind::Gemma3 {
            return tensor_role(stored, self.tied, &self.rope, self.head_dim);
        }
        if VISION.iter().any(|part| stored.starts_with(part)) {
            return TensorRole::Refused(
                "is of a vision tower, which is not supported; save the text model alone, by Gemma3ForCausalLM of \
                 transformers",
            );
        }
        let inner = stored.strip_prefix(PREFIX).unwrap_or(stored);
        match tensor_role(inner, self.tied, &self.rope, self.head_dim) {
            TensorRole::Model(name) if is_tensor_name(inner) => {
                TensorRole::Model(format!("{PREFIX}{name}").into())
            }
            TensorRole::Derived(DerivedTensor::TiedTo(_)) => {
                let embedding = "language_model.model.embed_tokens.weight";
                TensorRole::Derived(DerivedTensor::TiedTo(embedding))
            }
            role => role,
        }
    }

    fn is_name(&self, stored: &str) -> bool {
        let inner = match self.kind {
            GemmaKind::Gemma3 => stored.strip_prefix(PREFIX),
            _ => None,
        };
        is_tensor_name(inner.unwrap_or(stored))
    }

    fn untie_head(&mut self) -> bool {
        let has_untied = self.kind != GemmaKind::Gemma3;
        self.tied &= !has_untied;
        has_untied
    }
}
