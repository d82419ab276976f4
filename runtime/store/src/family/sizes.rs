//! Sizes of a transformer.

use serde::Serialize;

/// The sizes of a new model; the family derives those that are `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ModelSizes {
    /// `--hidden`: width of the residual stream.
    pub hidden: usize,
    /// `--layers`: transformer blocks.
    pub layers: usize,
    /// `--heads`: query heads, each `hidden / heads` wide.
    pub heads: usize,
    /// `--kv-heads`: key and value heads.
    pub kv_heads: Option<usize>,
    /// `--ffn`: width of the feed-forward.
    pub ffn: Option<usize>,
    /// `--vocab`: number of token ids.
    pub vocab: usize,
    /// `--tied`: one weight for embedding and head.
    pub tied: bool,
    /// `--experts`: experts of each block.
    pub experts: Option<usize>,
    /// `--top-k`: experts that each token chooses.
    pub top_k: Option<usize>,
}

/// Sizes of a transformer, to describe it and to check data and sequence lengths.
#[derive(Debug, Clone, PartialEq)]
pub struct Outline {
    /// Transformer blocks.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Number of token ids.
    pub vocab: usize,
    /// Longest sequence that has positions; `None` if unlimited.
    pub longest: Option<usize>,
}
