//! The dims of a Whisper, and the streams of its encoder and decoder.

use meshwright::prelude::*;

dims! {
    /// Clips of the global batch with their texts, distributed over the data axes.
    Batch @ data,
    /// Frames of the spectrogram, and of what the convolutions make of it.
    Frames,
    /// Bins of the spectrogram.
    Mels,
    /// Channels between the two convolutions.
    Stem,
    /// Positions of the encoder: half of the frames.
    Source,
    /// Rows of the encoder's table of positions.
    Positions,
    /// Positions of the text, which the decoder predicts.
    Target,
    /// Rows of the decoder's table of positions.
    TargetPositions,
    /// Residual streams of encoder and decoder.
    Hidden,
    /// Hidden layer of the MLPs of the encoder.
    SourceFfn,
    /// Attention heads of the encoder.
    SourceHeads,
    /// Elements of one head of the encoder.
    SourceHeadDim,
    /// Hidden layer of the MLPs of the decoder.
    Ffn,
    /// Attention heads of the decoder.
    Heads,
    /// Elements of one head of the decoder.
    HeadDim,
    /// Layers of the encoder. `Layers` counts the layers of the decoder.
    EncoderLayers,
    /// Token ids.
    Vocab,
}

/// The residual stream of the encoder, which is sequence-parallel outside of tensor-parallel regions.
pub type SourceStream = Tensor<(Batch, Split<Source, Tp>, Hidden)>;

/// The residual stream of the decoder, which is sequence-parallel outside of tensor-parallel regions.
pub type TargetStream = Tensor<(Batch, Split<Target, Tp>, Hidden)>;

/// The streams that a layer takes and returns.
pub type Flow = (SourceStream, TargetStream);
