//! The GPT-2 family.

mod config;
mod model;
mod names;

pub use config::{Gpt2Config, Gpt2Dropout};
pub use model::{Block, Gpt2, Mlp, SelfAttention, Stream};
pub use names::HF_NAMES;

public_dims!(model: Batch, Ffn, HeadDim, Heads, Hidden, Positions, Seq, Vocab);
