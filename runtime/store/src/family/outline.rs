//! Sizes of a transformer.

/// Sizes of a transformer, to describe it and to check data and sequence lengths.
#[derive(Debug, Clone, PartialEq)]
pub struct Outline {
    /// Transformer blocks, of all stacks.
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
