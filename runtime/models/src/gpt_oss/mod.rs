//! The gpt-oss family.

mod config;
mod mixture;
mod model;
mod names;

pub use config::GptOssConfig;
pub use mixture::{ExpertMlps, ExpertTokens, GateOptions, Mixture};
pub use model::{Block, GptOss, SelfAttention, Stream};
pub use names::HF_NAMES;

public_dims!(model: Batch, Experts, Ffn, GateUp, HeadDim, Heads, Hidden, KvHeads, Seq, TopK, Vocab);
