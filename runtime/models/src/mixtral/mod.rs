//! The Mixtral family.

mod config;
mod model;
mod names;

pub use config::MixtralConfig;
pub use model::{
    Batch, Block, ExpertMlps, ExpertTokens, Experts, Ffn, HeadDim, Heads, Hidden, KvHeads, Mixtral,
    Mixture, SelfAttention, Seq, Stream, TopK, Vocab,
};
pub use names::HF_NAMES;
