//! `config.json` of a ViT that classifies images.

use std::borrow::Cow;

use serde_json::{Map, Value};

use meshwright_store::checkpoint::hf::{HfKeys, HfSettings, KeyResult, TensorRole};
use meshwright_store::family::{ConfigKeys, SizeFlag};

/// Largest side of an image, in pixels.
const MAX_SIDE: usize = 1 << 16;

/// Most channels of an image.
const MAX_CHANNELS: usize = 1 << 10;

/// The sizes and constants of a ViT ([Dosovitskiy et al. 2020](https://arxiv.org/abs/2010.11929)): an encoder of the
/// patches of an image, with a class token, learned positions, and norms before attention and feed-forward.
#[derive(Debug, Clone, PartialEq)]
pub struct VitConfig {
    /// `hidden_size`: width of the residual stream.
    pub hidden: usize,
    /// `intermediate_size`: width of the feed-forward.
    pub ffn: usize,
    /// `num_hidden_layers`: transformer blocks.
    pub layers: usize,
    /// `num_attention_heads`: attention heads, each `hidden / heads` wide.
    pub heads: usize,
    /// `image_size`: height and width of an image, in pixels; by default 224.
    pub image_size: usize,
    /// `patch_size`: height and width of a patch, in pixels; by default 16.
    pub patch_size: usize,
    /// `num_channels`: numbers of a pixel; by default 3.
    pub channels: usize,
    /// `num_labels`, or the length of `id2label`: classes of images.
    pub classes: usize,
    /// `id2label`: the name of each class; none, if the file has none.
    pub labels: Vec<String>,
    /// `layer_norm_eps`: added to the variance in LayerNorm; by default 1e-12.
    pub norm_eps: f64,
    /// `qkv_bias`: biases of queries, keys and values; by default true.
    pub qkv_bias: bool,
    /// `hidden_dropout_prob`: rate of dropout after the embeddings, and on additions to the residual stream.
    pub dropout: f64,
    /// `attention_probs_dropout_prob`: rate of dropout of attention weights.
    pub attention_dropout: f64,
}

impl VitConfig {
    /// Returns the width of one head.
    pub fn head_dim(&self) -> usize {
        self.hidden / self.heads
    }

    /// Returns the number of patches of an image.
    pub fn patches(&self) -> usize {
        let side = self.image_size / self.patch_size;
        side * side
    }

    /// Returns the number of positions: one for the class token, and one for each patch.
    pub fn positions(&self) -> usize {
        self.patches() + 1
    }

    /// Returns the number of values of a patch.
    pub fn pixels(&self) -> usize {
        self.channels * self.patch_size * self.patch_size
    }

    /// Names the classes, in the forms that `transformers` reads.
    fn name_classes(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        keys.size_or(SizeFlag::VOCAB, "num_labels", &mut self.classes, 2)?;
        keys.list(&["id2label", "label2id"]);
        if let Some(settings) = keys.settings() {
            settings.ignore(&["label2id"]);
            self.labels = read_labels(settings)?;
            let (named, counted) = (self.labels.len(), settings.count("num_labels")?);
            match counted {
                Some(count) if named > 0 && named != count => {
                    return Err(format!(
                        "num_labels is {count}, but id2label names {named} classes"
                    ));
                }
                None if named > 0 => self.classes = named,
                _ => {}
            }
        }
        if keys.is_new() {
            self.labels.clear();
        }
        if !self.labels.is_empty() {
            let numbered = || self.labels.iter().enumerate();
            let names: Map<_, _> =
                numbered().map(|(id, label)| (id.to_string(), label.clone().into())).collect();
            let ids: Map<_, _> = numbered().map(|(id, label)| (label.clone(), id.into())).collect();
            keys.write("id2label", Value::Object(names));
            keys.write("label2id", Value::Object(ids));
        }
        Ok(())
    }
}

/// A model without sizes.
impl Default for VitConfig {
    fn default() -> VitConfig {
        VitConfig {
            hidden: 1,
            ffn: 1,
            layers: 1,
            heads: 1,
            image_size: 1,
            patch_size: 1,
            channels: 3,
            classes: 2,
            labels: Vec::new(),
            norm_eps: 1e-12,
            qkv_bias: true,
            dropout: 0.0,
            attention_dropout: 0.0,
        }
    }
}

impl ConfigKeys for VitConfig {
    const MODEL_TYPES: &'static [&'static str] = &["vit"];

    fn architecture(&self) -> Option<&'static str> {
        Some("ViTForImageClassification")
    }

    fn keys(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        // Of the pooler and of masked image models, which this one has no part of.
        keys.ignore(&["encoder_stride", "pooler_act", "pooler_output_size"]);
        keys.only("hidden_act", &["gelu"])?;
        keys.size(SizeFlag::HIDDEN, "hidden_size", &mut self.hidden)?;
        keys.size(SizeFlag::HEADS, "num_attention_heads", &mut self.heads)?;
        let VitConfig { hidden, heads, .. } = *self;
        keys.require(hidden.is_multiple_of(heads), || {
            format!("num_attention_heads {heads} does not divide hidden_size {hidden}")
        })?;
        keys.size_or_new(SizeFlag::FFN, "intermediate_size", &mut self.ffn, 4 * hidden)?;
        keys.size(SizeFlag::LAYERS, "num_hidden_layers", &mut self.layers)?;
        keys.count("image_size", &mut self.image_size, 224)?;
        keys.count("patch_size", &mut self.patch_size, 16)?;
        keys.count("num_channels", &mut self.channels, 3)?;
        let VitConfig { image_size, patch_size, channels, .. } = *self;
        keys.require(image_size <= MAX_SIDE, || {
            format!("image_size is {image_size}; at most {MAX_SIDE} pixels are supported")
        })?;
        keys.require(image_size.is_multiple_of(patch_size), || {
            format!("patch_size {patch_size} does not divide image_size {image_size}")
        })?;
        keys.require(channels <= MAX_CHANNELS, || {
            format!("num_channels is {channels}; at most {MAX_CHANNELS} are supported")
        })?;
        self.name_classes(keys)?;
        keys.number("layer_norm_eps", &mut self.norm_eps, 1e-12)?;
        keys.switch("qkv_bias", &mut self.qkv_bias, true)?;
        for (key, rate) in [
            ("hidden_dropout_prob", &mut self.dropout),
            ("attention_probs_dropout_prob", &mut self.attention_dropout),
        ] {
            keys.number(key, rate, 0.0)?;
            let rate = *rate;
            keys.require(rate < 1.0, || format!("{key} must be below 1, not {rate}"))?;
        }
        Ok(())
    }

    /// Folders of a bare `ViTModel` omit the prefix `vit.`, and have a pooler.
    fn is_name(&self, stored: &str) -> bool {
        let part = stored.strip_prefix("vit.").unwrap_or(stored);
        let parts = ["embeddings.", "encoder.layer.", "layernorm.", "pooler."];
        parts.iter().any(|name| part.starts_with(name)) || stored.starts_with("classifier.")
    }

    fn new_tensors(&self) -> &'static [&'static str] {
        &["classifier."]
    }

    fn role_of<'a>(&self, stored: &'a str) -> TensorRole<'a> {
        let part = stored.strip_prefix("vit.").unwrap_or(stored);
        if part.starts_with("pooler.") {
            TensorRole::Unused
        } else if stored.starts_with("vit.") || stored.starts_with("classifier.") {
            TensorRole::Model(Cow::Borrowed(stored))
        } else {
            TensorRole::Model(Cow::Owned(format!("vit.{stored}")))
        }
    }
}

/// Reads the names of the classes, in order.
fn read_labels(settings: &HfSettings<'_>) -> Result<Vec<String>, String> {
    let names = match settings.get("id2label") {
        None => return Ok(Vec::new()),
        Some(Value::Object(names)) => names,
        Some(other) => return Err(format!("id2label must be an object, not {other}")),
    };
    let label = |id: usize| match names.get(&id.to_string()) {
        Some(Value::String(label)) => Ok(label.clone()),
        Some(other) => Err(format!("id2label.{id} must be text, not {other}")),
        None => Err(format!(
            "id2label has {} classes, but none of number {id}: number them from 0",
            names.len()
        )),
    };
    (0..names.len()).map(label).collect()
}
