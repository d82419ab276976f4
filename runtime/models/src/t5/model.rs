//! A T5: an encoder and a decoder with biases by distance, on sequence-parallel residual streams. Both streams travel
//! through all stages of a pipeline, so it can be cut anywhere.

use meshwright::prelude::*;
use meshwright_core::nn::AttentionOptions;
use meshwright_store::family::FamilyModel;

use super::dims::{
    Batch, Buckets, EncoderLayers, Ffn, Flow, HeadDim, Heads, Hidden, Source, SourcePadding,
    Target, TargetStream, Vocab,
};
use super::{DecoderLayer, EncoderLayer, T5Config, names};
use crate::stack_positions::stack_positions;

/// The input: ids of the source, ids that the decoder reads, and the positions of the source that are not padding. The
/// decoder reads the target one position later, behind a start token.
pub type T5Input = (Tokens<(Batch, Source)>, Tokens<(Batch, Target)>, SourcePadding);

/// The embedding, which both streams begin with.
#[model]
pub struct Front {
    #[sharded(tp = "vocab", scatter = Source)]
    source: Embedding<Vocab, Hidden>,
    #[sharded(tp = "vocab", scatter = Target)]
    #[tied(source)]
    target: Embedding<Vocab, Hidden>,
    source_dropout: Dropout,
    target_dropout: Dropout,
}

#[forward]
impl Front {
    /// Returns the streams before the first layer of the encoder.
    pub fn forward(&self, (source, target, padding): &T5Input) -> Flow {
        let source = self.source_dropout.forward(&self.source.forward(source));
        let target = self.target_dropout.forward(&self.target.forward(target));
        (source, target, padding.clone())
    }
}

/// The end of the encoder.
#[model]
pub struct Bridge {
    norm: RmsNorm<Hidden>,
    dropout: Dropout,
}

#[forward]
impl Bridge {
    /// Returns the streams before the first layer of the decoder.
    pub fn forward(&self, (source, target, padding): &Flow) -> Flow {
        let source = self.dropout.forward(&self.norm.forward(source));
        (source, target.clone(), padding.clone())
    }
}

/// The factor of the output of the decoder, if there is one.
#[derive(Debug)]
struct OutputScale(Option<f32>);

impl Build for OutputScale {
    fn build(builder: &mut Builder<'_>) -> OutputScale {
        let width = builder.size::<Hidden>() as f64;
        let is_scaled = builder.sizes().flag("scale_decoder_outputs");
        OutputScale(is_scaled.then(|| width.powf(-0.5) as f32))
    }
}

/// The end of the decoder, which no longer needs the source.
#[model]
pub struct End {
    norm: RmsNorm<Hidden>,
    dropout: Dropout,
    scale: OutputScale,
}

#[forward]
impl End {
    /// Returns the stream before the head.
    pub fn forward(&self, (_, x, _): &Flow) -> TargetStream {
        let x = self.dropout.forward(&self.norm.forward(x));
        match self.scale.0 {
            Some(scale) => x * scale,
            None => x,
        }
    }
}

/// The model. Its `forward` runs the pipeline stages in order.
#[model]
pub struct T5 {
    #[pipeline_stage]
    front: Front,
    #[pipeline_stage]
    encoder: Stack<EncoderLayer, EncoderLayers>,
    #[pipeline_stage]
    bridge: Bridge,
    #[pipeline_stage]
    decoder: Stack<DecoderLayer>,
    #[pipeline_stage]
    end: End,
    #[pipeline_stage(last)]
    #[sharded(tp = "vocab")]
    #[tied(front.source, when = "tie_word_embeddings")]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl T5 {
    /// Returns the stream before the head.
    pub fn forward(&self, input: &T5Input) -> TargetStream;
}

impl T5 {
    /// Returns how many positions of a pair of these lengths, source and target, go through the field at `path`, and of
    /// an attention queries and keys.
    pub fn positions(path: &str, [source, target]: [usize; 2]) -> [usize; 2] {
        stack_positions(path, [source, target])
    }

    /// Returns the mean cross-entropy of the targets, from the output of `forward`.
    pub fn loss_of_output(
        &self,
        x: &TargetStream,
        targets: &Targets<(Batch, Target)>,
    ) -> Loss<(Batch, Target)> {
        self.head.loss(x, targets)
    }

    /// Returns the logits of each position of the target, replicated on every rank, from the output of `forward`.
    pub fn logits_of_output(&self, x: &TargetStream) -> Tensor<(Batch, Target, Vocab)> {
        self.head.logits(x).gather(Vocab)
    }
}

impl FamilyModel for T5 {
    type Positions = Target;
    type Config = T5Config;

    fn tensor_names(config: &T5Config) -> Vec<HfName> {
        names::hf_names(config)
    }

    fn dim_sizes(config: &T5Config) -> Sizes {
        let width = |of: usize| Init::Normal((config.init_factor / (of as f64).sqrt()) as f32);
        let embedding = Init::Normal(config.init_factor as f32);
        let own_head = if config.tied { &[][..] } else { &[("head", embedding)] };
        let gate = if config.gated { &[("gate", width(config.hidden))][..] } else { &[] };
        // As `transformers` begins, without a scale of scores.
        let inits = [
            ("source", embedding),
            ("q", width(config.hidden * config.head_dim)),
            ("k", width(config.hidden)),
            ("v", width(config.hidden)),
            ("bias", width(config.hidden)),
            ("o", width(config.heads * config.head_dim)),
            ("up", width(config.hidden)),
            ("down", width(config.ffn)),
        ];
        let max_distance = config.max_distance;
        let mut sizes = Sizes::new()
            .with(Hidden, config.hidden)
            .with(Ffn, config.ffn)
            .with(Heads, config.heads)
            .with(HeadDim, config.head_dim)
            .with(Buckets, config.buckets)
            .with(Vocab, config.vocab)
            .with(EncoderLayers, config.encoder_layers)
            .with(Layers, config.decoder_layers)
            .with_flag("tie_word_embeddings", config.tied)
            .with_flag("scale_decoder_outputs", config.scaled)
            .with_optional("gate", config.gated)
            .with_attention(
                "bias",
                AttentionOptions { max_distance, ..AttentionOptions::default() },
            );
        for (field, init) in inits.iter().chain(own_head).chain(gate) {
            sizes = sizes.with_init(field, *init);
        }
        sizes.attention.scale = Some(1.0);
        sizes.attention.dropout = config.dropout as f32;
        sizes.norm_eps = config.norm_eps as f32;
        sizes.dropout = config.dropout as f32;
        sizes
    }
}
