//! The Llama family.

mod config;
mod model;
mod names;

pub use config::LlamaConfig;
pub use model::{
    Batch, Block, Ffn, HeadDim, Heads, Hidden, KvHeads, Llama, Mlp, SelfAttention, Seq, Stream,
    Vocab,
};
pub use names::HF_NAMES;
