//! The GPT-NeoX family, to which Pythia belongs.

mod config;
mod model;
mod names;

pub use config::GptNeoxConfig;
pub use model::{Block, GptNeox, Mlp, SelfAttention, Stream};
pub use names::HF_NAMES;

public_dims!(model: Batch, Ffn, HeadDim, HeadParts, Heads, Hidden, Seq, Vocab);
