//! Decoders whose feed-forwards are mixtures of experts: the Qwen3-MoE family.

mod config;
mod model;
mod names;

pub use config::MoeDecoderConfig;
pub use model::{Block, ExpertMlps, ExpertTokens, Mixture, MoeDecoder, SelfAttention, Stream};
pub use names::HF_NAMES;

public_dims!(model: Batch, Experts, Ffn, HeadDim, Heads, Hidden, KvHeads, Seq, TopK, Vocab);
