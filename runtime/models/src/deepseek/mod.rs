//! The DeepSeek-V3 family.

mod attention;
mod config;
mod dims;
mod keys;
mod mixture;
mod model;
mod names;

pub use attention::{HeadSizes, LatentAttention, LatentQuery};
pub use config::DeepseekConfig;
pub use dims::Stream;
pub use mixture::{ExpertMlps, ExpertTokens, Mixture, Mlp, SharedMlp};
pub use model::{Block, Deepseek, DenseBlock, MoeBlock};
pub use names::HF_NAMES;

public_dims!(
    dims: Batch, Compressed, ExpertFfn, Experts, Ffn, Heads, Hidden, KeyValue, Latent, PlainDim,
    QueryDim, QueryLatent, RotatedDim, Seq, SharedFfn, TopK, ValueDim, Vocab
);
