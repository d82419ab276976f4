//! The OLMo 2 family.

mod config;
mod model;
mod names;

pub use config::Olmo2Config;
pub use model::{Block, Mlp, Olmo2, SelfAttention, Stream};
pub use names::HF_NAMES;

public_dims!(model: Batch, Ffn, HeadDim, Heads, Hidden, KvHeads, Seq, Vocab);
