//! Decoders like Llama, one struct: `llama`, `mistral`, `qwen2`, `qwen3`, `phi3` and `smollm3`.

mod config;
mod model;
mod names;
mod row_keys;
mod rows;

pub use config::DecoderConfig;
pub use model::{Block, Llama as Decoder, Mlp, SelfAttention, Stream};
pub use names::{BLOCK, ENDS, FUSED, GATED, MLP_BIASES, OUTPUT_BIAS, QK_NORMS, QKV, QKV_BIASES};
pub use rows::{Biases, DecoderRow, ROWS, Windows};

public_dims!(model: Batch, Ffn, HeadDim, Heads, Hidden, KvHeads, Seq, Vocab);
