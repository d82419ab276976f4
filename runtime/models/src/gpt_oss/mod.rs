//! The gpt-oss family.

mod config;
mod dims;
mod mixture;
mod model;
mod names;

pub use config::GptOssConfig;
pub use dims::Stream;
pub use mixture::{ExpertMlps, ExpertTokens, GateOptions, Mixture};
pub use model::{Block, GptOss, SelfAttention};
pub use names::HF_NAMES;

public_dims!(dims: Batch, Experts, Ffn, GateUp, HeadDim, Heads, Hidden, KvHeads, Seq, TopK, Vocab);
