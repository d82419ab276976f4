//! The Whisper family.

mod config;
mod decoder;
mod dims;
mod encoder;
mod keys;
mod log_mel;
mod model;
mod names;
mod wav;

pub use config::WhisperConfig;
pub use decoder::{CrossAttention, DecoderLayer, TargetAttention, TargetMlp};
pub use dims::{Flow, SourceStream, TargetStream};
pub use encoder::{EncoderLayer, SourceAttention, SourceMlp};
pub use log_mel::LogMel;
pub use model::{Bridge, End, Front, Whisper, WhisperInput};
pub use names::hf_names;
pub use wav::read_wav;

public_dims!(
    dims: Batch, EncoderLayers, Ffn, Frames, HeadDim, Heads, Hidden, Mels, Positions, Source, SourceFfn, SourceHeadDim,
    SourceHeads, Stem, Target, TargetPositions, Vocab
);
