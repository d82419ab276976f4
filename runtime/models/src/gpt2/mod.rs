//! The GPT-2 family.

mod config;
mod model;
mod names;

pub use config::{Gpt2Config, Gpt2Dropout};
pub use model::{
    Batch, Block, Ffn, Gpt2, HeadDim, Heads, Hidden, Mlp, Positions, SelfAttention, Seq, Stream,
    Vocab,
};
pub use names::HF_NAMES;
