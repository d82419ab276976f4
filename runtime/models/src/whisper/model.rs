//! A Whisper: convolutions and an encoder of log-mel spectrograms, and a decoder of text, on sequence-parallel residual
//! streams. Both streams travel through all stages of a pipeline, so it can be cut anywhere.

use meshwright::prelude::*;
use meshwright_store::family::FamilyModel;

use super::dims::{
    Batch, EncoderLayers, Ffn, Flow, Frames, HeadDim, Heads, Hidden, Mels, Positions, Source,
    SourceFfn, SourceHeadDim, SourceHeads, Stem, Target, TargetPositions, TargetStream, Vocab,
};
use super::{DecoderLayer, EncoderLayer, WhisperConfig, names};
use crate::stack_positions::stack_positions;

/// The input: spectrograms, as [`LogMel`](super::LogMel) computes them, and the ids that the decoder reads. It reads the
/// target one position later, behind a start token.
pub type WhisperInput = (Tensor<(Batch, Frames, Mels)>, Tokens<(Batch, Target)>);

/// The convolutions, of which the second one halves the number of frames, the embedding, and the positions of both.
#[model]
pub struct Front {
    #[sharded(tp = "col")]
    conv1: Conv1d<Mels, Stem, 3, 1, 1>,
    #[sharded(tp = "col")]
    conv1_bias: Bias<Stem>,
    #[sharded(tp = "row", scatter = Frames)]
    conv2: Conv1d<Stem, Hidden, 3, 2, 1>,
    conv2_bias: Bias<Hidden>,
    /// Sinusoids, which are stored with the weights and not trained.
    #[frozen]
    positions: LearnedPositions<Positions, Hidden>,
    #[sharded(tp = "vocab", scatter = Target)]
    target: Embedding<Vocab, Hidden>,
    target_positions: LearnedPositions<TargetPositions, Hidden>,
}

#[forward]
impl Front {
    /// Returns the streams before the first layer of the encoder.
    pub fn forward(&self, (mels, target): &WhisperInput) -> Flow {
        let x = self.conv1_bias.forward(&self.conv1.forward(mels)).gelu();
        let x = self.conv2_bias.forward(&self.conv2.forward(&x)).gelu();
        let source = self.positions.forward(&x.rename(Frames, Source));
        (source, self.target_positions.forward(&self.target.forward(target)))
    }
}

/// The end of the encoder.
#[model]
pub struct Bridge {
    norm: LayerNorm<Hidden>,
}

#[forward]
impl Bridge {
    /// Returns the streams before the first layer of the decoder.
    pub fn forward(&self, (source, target): &Flow) -> Flow {
        (self.norm.forward(source), target.clone())
    }
}

/// The end of the decoder, which no longer needs the clip.
#[model]
pub struct End {
    norm: LayerNorm<Hidden>,
}

#[forward]
impl End {
    /// Returns the stream before the head.
    pub fn forward(&self, (_, x): &Flow) -> TargetStream {
        self.norm.forward(x)
    }
}

/// The model. Its `forward` runs the pipeline stages in order.
#[model]
pub struct Whisper {
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
    #[tied(front.target)]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl Whisper {
    /// Returns the stream before the head.
    pub fn forward(&self, input: &WhisperInput) -> TargetStream;
}

impl Whisper {
    /// Returns how many positions of a clip and a text of these numbers of positions go through the field at `path`, and
    /// of an attention queries and keys. The first convolution has twice the positions of the encoder.
    pub fn positions(path: &str, [source, target]: [usize; 2]) -> [usize; 2] {
        match path {
            "front.conv1.weight" | "front.conv1_bias.bias" => [2 * source; 2],
            _ => stack_positions(path, [source, target]),
        }
    }

    /// Returns the mean cross-entropy of the targets, from the output of `forward`.
    pub fn loss_of_output(
        &self,
        x: &TargetStream,
        targets: &Targets<(Batch, Target)>,
    ) -> Loss<(Batch, Target)> {
        self.head.loss(x, targets)
    }

    /// Returns the logits of each position of the text, replicated on every rank, from the output of `forward`.
    pub fn logits_of_output(&self, x: &TargetStream) -> Tensor<(Batch, Target, Vocab)> {
        self.head.logits(x).gather(Vocab)
    }
}

impl FamilyModel for Whisper {
    type Positions = Target;
    type Config = WhisperConfig;

    fn tensor_names(config: &WhisperConfig) -> Vec<HfName> {
        names::hf_names(config)
    }

    fn dim_sizes(config: &WhisperConfig) -> Sizes {
        let mut sizes = Sizes::new()
            .with(Mels, config.mels)
            .with(Stem, config.hidden)
            .with(Source, config.source_positions)
            .with(Positions, config.source_positions)
            .with(TargetPositions, config.target_positions)
            .with(Hidden, config.hidden)
            .with(SourceFfn, config.encoder_ffn)
            .with(SourceHeads, config.encoder_heads)
            .with(SourceHeadDim, config.hidden / config.encoder_heads)
            .with(Ffn, config.decoder_ffn)
            .with(Heads, config.decoder_heads)
            .with(HeadDim, config.hidden / config.decoder_heads)
            .with(Vocab, config.vocab)
            .with(EncoderLayers, config.encoder_layers)
            .with(Layers, config.decoder_layers)
            .with_init("front.positions", Init::Sinusoids { longest: 10_000.0 });
        for field in ["q", "v", "o", "up", "down"] {
            sizes = sizes.with_optional(&format!("{field}.bias"), true);
        }
        if let Some(row) = config.padding {
            sizes = sizes.with_padding(Vocab, row);
        }
        sizes.norm_eps = 1e-5;
        sizes.init_std = config.init_std as f32;
        sizes
    }
}
