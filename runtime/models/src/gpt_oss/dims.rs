//! The dims of a gpt-oss.

use meshwright::prelude::*;

dims! {
    /// Sequences of the global batch, distributed over the data axes.
    Batch @ data,
    /// Positions, distributed over the ranks of `cp`.
    Seq @ cp,
    /// Residual stream.
    Hidden,
    /// Hidden layer of each expert.
    Ffn,
    /// Gate and up-projection of an element of the hidden layer.
    GateUp,
    /// Query heads.
    Heads,
    /// Key-value heads, each shared by `Heads / KvHeads` query heads.
    KvHeads,
    /// Elements of one head.
    HeadDim,
    /// Experts of each block.
    Experts,
    /// Experts that a token chooses.
    TopK,
    /// Token ids.
    Vocab,
}

/// The residual stream, which is sequence-parallel outside of tensor-parallel regions.
pub type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;
