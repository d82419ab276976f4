//! The Mixtral family.

mod config;
mod model;
mod names;

pub use config::MixtralConfig;
pub use model::{Block, ExpertMlps, ExpertTokens, Mixtral, Mixture, SelfAttention, Stream};
pub use names::HF_NAMES;

public_dims!(model: Batch, Experts, Ffn, HeadDim, Heads, Hidden, KvHeads, Seq, TopK, Vocab);
