//! The DeepSeek-V3 family.

mod attention;
mod config;
mod keys;
mod mixture;
mod model;
mod names;

pub use attention::{HeadSizes, LatentAttention, LatentQuery};
pub use config::DeepseekConfig;
pub use mixture::{ExpertMlps, ExpertTokens, Mixture, Mlp, SharedMlp};
pub use model::{Block, Deepseek, DenseBlock, MoeBlock, Stream};
pub use names::HF_NAMES;

public_dims!(
    model: Batch, Compressed, ExpertFfn, Experts, Ffn, Heads, Hidden, KeyValue, Latent, PlainDim,
    QueryDim, QueryLatent, RotatedDim, Seq, SharedFfn, TopK, ValueDim, Vocab
);
