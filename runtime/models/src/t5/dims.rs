//! The dims of a T5, and the streams of its encoder and decoder.

use meshwright::prelude::*;

dims! {
    /// Pairs of source and target of the global batch, distributed over the data axes.
    Batch @ data,
    /// Positions of the source, which the encoder reads.
    Source,
    /// Positions of the target, which the decoder predicts.
    Target,
    /// Residual streams of encoder and decoder.
    Hidden,
    /// Hidden layer of the MLPs.
    Ffn,
    /// Attention heads.
    Heads,
    /// Elements of one head.
    HeadDim,
    /// Buckets of distances.
    Buckets,
    /// Layers of the encoder. `Layers` counts the layers of the decoder.
    EncoderLayers,
    /// Token ids.
    Vocab,
}

/// The residual stream of the encoder, which is sequence-parallel outside of tensor-parallel regions.
pub type SourceStream = Tensor<(Batch, Split<Source, Tp>, Hidden)>;

/// The residual stream of the decoder, which is sequence-parallel outside of tensor-parallel regions.
pub type TargetStream = Tensor<(Batch, Split<Target, Tp>, Hidden)>;

/// The positions of each source that are not padding.
pub type SourcePadding = Padding<(Batch, Source)>;

/// Everything that a layer takes and returns: both streams, and the padding of the source.
pub type Flow = (SourceStream, TargetStream, SourcePadding);
