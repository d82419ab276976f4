//! `config.json` of a GPT-NeoX model.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use meshwright_core::rotary::{RopeParameters, RopeScaling};
use meshwright_store::checkpoint::hf::{
    DerivedTensor, HfKeys, HfSettings, KeyResult, TensorRole, read_rope_objects,
    require_same_number, write_rope,
};
use meshwright_store::family::{ConfigKeys, SizeFlag};

/// The fraction of a head that rotates, in a file without the key.
const ROTATED: f64 = 0.25;

/// The key of the base of wavelengths, which other families call `rope_theta`.
const BASE: &str = "rotary_emb_base";

/// The key of the fraction that rotates, which other families call `partial_rotary_factor`.
const FRACTION: &str = "rotary_pct";

/// The sizes and constants of a GPT-NeoX model ([Black et al. 2022](https://arxiv.org/abs/2204.06745)), such as Pythia
/// ([Biderman et al. 2023](https://arxiv.org/abs/2304.01373)): LayerNorm, biases, exact GELU, and attention and
/// feed-forward that read the same stream.
#[derive(Debug, Clone, PartialEq)]
pub struct GptNeoxConfig {
    /// `hidden_size`: width of the residual stream.
    pub hidden: usize,
    /// `intermediate_size`: width of the feed-forward.
    pub ffn: usize,
    /// `num_hidden_layers`: transformer blocks.
    pub layers: usize,
    /// `num_attention_heads`: attention heads, each `hidden / heads` wide.
    pub heads: usize,
    /// `vocab_size`: number of token ids.
    pub vocab: usize,
    /// `layer_norm_eps`: added to the variance in LayerNorm; by default 1e-5.
    pub norm_eps: f64,
    /// `rope_parameters`, or `rotary_emb_base` and `rotary_pct`: rotary frequencies. By default a quarter of a head
    /// rotates.
    pub rope: RopeParameters,
    /// `use_parallel_residual`: true if the feed-forward of a block reads the stream before its attention; by default
    /// true.
    pub parallel: bool,
    /// `attention_bias`: biases of queries, keys, values and the output of attentions; by default true.
    pub biases: bool,
    /// `tie_word_embeddings`: one weight for embedding and head; by default false.
    pub tied: bool,
    /// `max_position_embeddings`: the longest sequence that the model was made for; by default 2048.
    pub max_positions: usize,
    /// `bos_token_id`, as in the file.
    pub bos: Value,
    /// `eos_token_id`, as in the file: one id or several.
    pub eos: Value,
}

/// A model without sizes.
impl Default for GptNeoxConfig {
    fn default() -> GptNeoxConfig {
        GptNeoxConfig {
            hidden: 1,
            ffn: 1,
            layers: 1,
            heads: 1,
            vocab: 1,
            norm_eps: 1e-5,
            rope: rope_of(10_000.0, ROTATED),
            parallel: true,
            biases: true,
            tied: false,
            max_positions: 2048,
            bos: Value::Null,
            eos: Value::Null,
        }
    }
}

fn rope_of(theta: f64, partial_rotary_factor: f64) -> RopeParameters {
    RopeParameters { theta, partial_rotary_factor, scaling: RopeScaling::Default }
}

impl GptNeoxConfig {
    /// Returns the width of one head.
    pub fn head_dim(&self) -> usize {
        self.hidden / self.heads
    }

    /// Names the rotary parameters.
    fn rope_keys(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        let (head_dim, max_positions) = (self.head_dim(), self.max_positions);
        keys.list(&["rope_parameters", "rope_scaling", BASE, FRACTION]);
        if let Some(settings) = keys.settings() {
            self.rope = read_rotation(settings, head_dim, max_positions)?;
        } else if keys.is_new() {
            self.rope = rope_of(10_000.0, ROTATED);
            self.rope.rotary_dim(head_dim).map_err(|_| {
                format!(
                    "--heads: {} makes heads {head_dim} wide, and a quarter of a head rotates, in pairs of elements: \
                     choose a number of heads that makes them a multiple of 8 wide",
                    self.heads
                )
            })?;
        }
        for (key, value) in written_rotation(&self.rope) {
            keys.write(&key, value);
        }
        // Frequencies depend on the length that the model was made for.
        if let RopeScaling::Dynamic { trained_positions, .. } = self.rope.scaling {
            keys.write("max_position_embeddings", trained_positions);
        }
        Ok(())
    }
}

/// Reads rotary parameters, whose objects take precedence over the keys of the family.
fn read_rotation(
    settings: &HfSettings<'_>,
    head_dim: usize,
    max_positions: usize,
) -> Result<RopeParameters, String> {
    let plain = rope_of(
        settings.number(BASE)?.unwrap_or(10_000.0),
        settings.number(FRACTION)?.unwrap_or(ROTATED),
    );
    let rope = read_rope_objects(settings, plain, head_dim, max_positions);
    let names = [(BASE, "rope_theta"), (FRACTION, "partial_rotary_factor")];
    // Of values that are not in an object.
    let rope = rope.map_err(|problem| {
        let found = names.iter().find(|(_, name)| problem.starts_with(&format!("{name} ")));
        found.map_or(problem.clone(), |(key, name)| problem.replacen(name, key, 1))
    })?;
    for object in ["rope_parameters", "rope_scaling"] {
        for (key, name) in names {
            require_same_number(settings, key, &[object, name])?;
        }
    }
    Ok(rope)
}

/// Returns the keys of rotary parameters, for versions of `transformers` before 5 and for later ones.
fn written_rotation(rope: &RopeParameters) -> Map<String, Value> {
    let mut of_others = Map::new();
    write_rope(rope, &mut of_others);
    let mut keys = Map::new();
    for name in ["rope_parameters", "rope_scaling"] {
        if let Some(Value::Object(mut object)) = of_others.remove(name) {
            // An absent one is a quarter here, and the whole head in other families.
            object.insert("partial_rotary_factor".into(), json!(rope.partial_rotary_factor));
            keys.insert(name.into(), Value::Object(object));
        }
    }
    keys.insert(BASE.into(), json!(rope.theta));
    keys.insert(FRACTION.into(), json!(rope.partial_rotary_factor));
    keys
}

impl ConfigKeys for GptNeoxConfig {
    const MODEL_TYPES: &'static [&'static str] = &["gpt_neox"];

    fn architecture(&self) -> Option<&'static str> {
        Some("GPTNeoXForCausalLM")
    }

    fn keys(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        // Of heads for other tasks. The embedding has no row for padding.
        keys.ignore(&["classifier_dropout", "is_decoder", "pad_token_id"]);
        keys.only("hidden_act", &["gelu"])?;
        for rate in ["attention_dropout", "hidden_dropout"] {
            keys.no_rate(rate)?;
        }
        keys.size(SizeFlag::HIDDEN, "hidden_size", &mut self.hidden)?;
        let ffn = 4 * self.hidden;
        keys.size_or_new(SizeFlag::FFN, "intermediate_size", &mut self.ffn, ffn)?;
        keys.size(SizeFlag::LAYERS, "num_hidden_layers", &mut self.layers)?;
        keys.size(SizeFlag::HEADS, "num_attention_heads", &mut self.heads)?;
        let (hidden, heads) = (self.hidden, self.heads);
        keys.require(hidden.is_multiple_of(heads), || {
            format!("num_attention_heads {heads} does not divide hidden_size {hidden}")
        })?;
        keys.size(SizeFlag::VOCAB, "vocab_size", &mut self.vocab)?;
        keys.number("layer_norm_eps", &mut self.norm_eps, 1e-5)?;
        keys.switch("use_parallel_residual", &mut self.parallel, true)?;
        keys.switch("attention_bias", &mut self.biases, true)?;
        keys.max_positions(&mut self.max_positions, 2048)?;
        self.rope_keys(keys)?;
        keys.tied(&mut self.tied, false)?;
        keys.token("bos_token_id", &mut self.bos)?;
        keys.token("eos_token_id", &mut self.eos)
    }

    /// Older folders store the causal mask, the score of masked positions and the rotary frequencies of each layer; a
    /// bare `GPTNeoXModel` omits the prefix `gpt_neox.`.
    fn role_of<'a>(&self, stored: &'a str) -> TensorRole<'a> {
        if stored.ends_with(".attention.bias") {
            return TensorRole::Derived(DerivedTensor::CausalMask);
        }
        if stored.ends_with(".attention.masked_bias") {
            return TensorRole::Derived(DerivedTensor::MaskedScore);
        }
        if stored.ends_with("rotary_emb.inv_freq") {
            let (rope, head_dim) = (self.rope.clone(), self.head_dim());
            return TensorRole::Derived(DerivedTensor::RotaryFrequencies(rope, head_dim));
        }
        match stored {
            "embed_out.weight" | "lm_head.weight" if self.tied => {
                TensorRole::Derived(DerivedTensor::TiedTo("gpt_neox.embed_in.weight"))
            }
            // The name in newer versions of `transformers`, before it stores a model.
            "lm_head.weight" => TensorRole::Model(Cow::Borrowed("embed_out.weight")),
            _ if is_bare_name(stored) => {
                TensorRole::Model(Cow::Owned(format!("gpt_neox.{stored}")))
            }
            _ => TensorRole::Model(Cow::Borrowed(stored)),
        }
    }

    fn is_name(&self, stored: &str) -> bool {
        let is_head = ["embed_out.", "lm_head."].iter().any(|name| stored.starts_with(name));
        is_head || is_bare_name(stored.strip_prefix("gpt_neox.").unwrap_or(stored))
    }

    fn untie_head(&mut self) -> bool {
        self.tied = false;
        true
    }
}

/// Returns true for names of tensors of a model without a head.
fn is_bare_name(stored: &str) -> bool {
    ["embed_in.", "layers.", "final_layer_norm."].iter().any(|part| stored.starts_with(part))
}
