//! The T5 family.

mod config;
mod decoder;
mod dims;
mod encoder;
mod model;
mod names;

pub use config::T5Config;
pub use decoder::{CrossAttention, DecoderLayer, TargetAttention, TargetMlp};
pub use dims::{Flow, SourcePadding, SourceStream, TargetStream};
pub use encoder::{EncoderLayer, SourceAttention, SourceMlp};
pub use model::{Bridge, End, Front, T5, T5Input};
pub use names::hf_names;

public_dims!(
    dims: Batch, Buckets, EncoderLayers, Ffn, HeadDim, Heads, Hidden, Source, Target, Vocab
);
