//! Gemma 2 and 3.

mod config;
mod keys;
mod layers;
mod model;
mod names;
mod rope;

pub use config::{GemmaConfig, GemmaKind};
pub use model::{Block, Gemma, Mlp, ScaledEmbedding, SelfAttention, Stream};

public_dims!(model: Batch, Ffn, HeadDim, Heads, Hidden, KvHeads, Seq, Vocab);
