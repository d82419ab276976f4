//! The Llama family.

mod config;
mod model;
mod names;

pub use config::LlamaConfig;
pub use model::{Block, Llama, Mlp, SelfAttention, Stream};
pub use names::HF_NAMES;

public_dims!(model: Batch, Ffn, HeadDim, Heads, Hidden, KvHeads, Seq, Vocab);
