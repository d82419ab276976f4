//! The dims of a DeepSeek-V3.

use meshwright::prelude::*;

dims! {
    /// Sequences of the global batch, distributed over the data axes.
    Batch @ data,
    /// Positions, distributed over the ranks of `cp`.
    Seq @ cp,
    /// Residual stream.
    Hidden,
    /// Hidden layer of the dense feed-forwards.
    Ffn,
    /// Hidden layer of each expert.
    ExpertFfn,
    /// Hidden layer of the experts that all tokens use, together.
    SharedFfn,
    /// Attention heads.
    Heads,
    /// Latent vector of queries.
    QueryLatent,
    /// Elements of a query or key of one head: those without positions, and those that are rotated.
    QueryDim,
    /// Elements without positions.
    PlainDim,
    /// Elements that are rotated.
    RotatedDim,
    /// Latent vector of keys and values, and the rotated part of the keys of all heads.
    Compressed,
    /// Latent vector of keys and values.
    Latent,
    /// Key without its rotated part, and value, of one head.
    KeyValue,
    /// Elements of the value of one head.
    ValueDim,
    /// Experts of each mixture.
    Experts,
    /// Experts that a token chooses.
    TopK,
    /// Token ids.
    Vocab,
}

/// The residual stream, which is sequence-parallel outside of tensor-parallel regions.
pub type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;
