//! The configuration of a ModernBERT.

use std::marker::PhantomData;

use meshwright::prelude::*;
use serde_json::Value;

use super::model::{Classes, Ffn, HeadDim, Heads, Hidden, Vocab};
use super::rope::default_ropes;
use crate::encoders::{ClassLabels, MaskedTokens};
use meshwright_core::rotary::RopeParameters;

/// The vector of a text that a classifier reads: `classifier_pooling`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pooling {
    /// The vector of the first token: `cls`.
    #[default]
    First,
    /// The mean over the tokens: `mean`.
    Mean,
}

impl Pooling {
    /// The flag of the sizes that sets a mean.
    pub(super) const FLAG: &str = "mean_pooling";
}

impl Build for Pooling {
    fn build(builder: &mut Builder<'_>) -> Self {
        if builder.sizes().flag(Pooling::FLAG) { Pooling::Mean } else { Pooling::First }
    }
}

/// The sizes and constants of a ModernBERT ([Warner et al. 2024](https://arxiv.org/abs/2412.13663)): rotary positions,
/// attention to both sides in windows in two of three layers, norms before each branch, and a gated feed-forward. `U`
/// is its use.
#[derive(Debug, Clone, PartialEq)]
pub struct ModernBertConfig<U = MaskedTokens> {
    /// `hidden_size`: width of the residual stream.
    pub hidden: usize,
    /// `intermediate_size`: width of the feed-forward; in a new model one and a half times `hidden_size`.
    pub ffn: usize,
    /// `num_hidden_layers`: transformer blocks.
    pub layers: usize,
    /// `num_attention_heads`: attention heads, each `hidden / heads` wide.
    pub heads: usize,
    /// `vocab_size`: number of token ids.
    pub vocab: usize,
    /// `norm_eps`: added to the variance in LayerNorm; by default 1e-5.
    pub norm_eps: f64,
    /// Rotary frequencies of layers without a window: `rope_parameters.full_attention`, or `global_rope_theta`.
    pub rope: RopeParameters,
    /// Rotary frequencies of layers with a window: `rope_parameters.sliding_attention`, or `local_rope_theta`.
    pub local_rope: RopeParameters,
    /// `local_attention`: the positions that a window spans on both sides together; by default 128.
    pub local_attention: usize,
    /// `layer_types`: whether each layer has a window. By default, all do but each `global_attn_every_n_layers`th.
    pub slides: Vec<bool>,
    /// `attention_bias`: biases of queries, keys, values and the output of attentions.
    pub attention_bias: bool,
    /// `mlp_bias`: biases of the feed-forward.
    pub mlp_bias: bool,
    /// `norm_bias`: biases of norms.
    pub norm_bias: bool,
    /// `decoder_bias`: a bias of the head over all tokens; by default true.
    pub decoder_bias: bool,
    /// `classifier_bias`: a bias of the layer before the head.
    pub classifier_bias: bool,
    /// `classifier_pooling`: the vector that a classifier of texts reads.
    pub pooling: Pooling,
    /// `tie_word_embeddings`: one weight for embedding and head; by default true.
    pub tied: bool,
    /// `max_position_embeddings`: the longest text that the model was made for; by default 8192.
    pub max_positions: usize,
    /// `pad_token_id`: the row of the embedding that look-ups do not train; by default 50283.
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

/// A model without sizes.
impl<U> Default for ModernBertConfig<U> {
    fn default() -> ModernBertConfig<U> {
        let [rope, local_rope] = default_ropes();
        ModernBertConfig {
            hidden: 1,
            ffn: 1,
            layers: 1,
            heads: 1,
            vocab: 1,
            norm_eps: 1e-5,
            rope,
            local_rope,
            local_attention: 128,
            slides: Vec::new(),
            attention_bias: false,
            mlp_bias: false,
            norm_bias: false,
            decoder_bias: true,
            classifier_bias: false,
            pooling: Pooling::default(),
            tied: true,
            max_positions: 8192,
            padding: None,
            labels: ClassLabels::default(),
            bos: Value::Null,
            eos: Value::Null,
            of_use: PhantomData,
        }
    }
}

impl<U> ModernBertConfig<U> {
    /// Returns the width of one head.
    pub fn head_dim(&self) -> usize {
        self.hidden / self.heads
    }

    /// Returns the positions that a query sees on each side, and its own.
    fn window(&self) -> usize {
        self.local_attention / 2 + 1
    }

    /// Returns the sizes of the encoder, and of the layers between it and the weight of a head.
    pub fn backbone_sizes(&self) -> Sizes {
        let kinds = (0..self.layers).map(|layer| if layer == 0 { "First" } else { "Later" });
        let mut sizes = Sizes::new()
            .with(Hidden, self.hidden)
            .with(Ffn, self.ffn)
            .with(Heads, self.heads)
            .with(HeadDim, self.head_dim())
            .with(Vocab, self.vocab)
            .with(Layers, self.layers)
            .with_kinds("blocks", kinds)
            .with_optional("dense.bias", self.classifier_bias);
        for field in ["q", "k", "v", "o"] {
            sizes = sizes.with_optional(&format!("attn.{field}.bias"), self.attention_bias);
        }
        for field in ["gate", "up", "down"] {
            sizes = sizes.with_optional(&format!("mlp.{field}.bias"), self.mlp_bias);
        }
        for norm in ["norm", "attn_norm", "mlp_norm", "final_norm"] {
            sizes = sizes.with_optional(&format!("{norm}.bias"), self.norm_bias);
        }
        if let Some(row) = self.padding {
            sizes = sizes.with_padding(Vocab, row);
        }
        sizes.norm_eps = self.norm_eps as f32;
        let of_layer = |slides: &bool| {
            let rope = if *slides { &self.local_rope } else { &self.rope };
            (Some(rope.clone()), slides.then(|| self.window()))
        };
        let (ropes, windows) = self.slides.iter().map(of_layer).unzip();
        sizes.ropes = ropes;
        sizes.attention.windows = windows;
        if !self.slides.contains(&true) {
            sizes.attention.windows.clear();
        }
        sizes
    }

    /// Returns the sizes of a classifier.
    pub fn classifier_sizes(&self) -> Sizes {
        let sizes = self.backbone_sizes().with(Classes, self.labels.count());
        sizes.with_optional("classifier.bias", true)
    }
}
