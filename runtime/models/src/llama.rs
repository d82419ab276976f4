//! The Llama family: the first row of [`decoder`](crate::decoder).

pub use crate::decoder::{
    Batch, Block, Decoder as Llama, DecoderConfig as LlamaConfig, Ffn, HeadDim, Heads, Hidden,
    KvHeads, Mlp, SelfAttention, Seq, Stream, Vocab,
};
