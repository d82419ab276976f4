//! Dims of a ModernBERT, and what its stages pass on.

use meshwright::prelude::*;

dims! {
    /// Texts of the global batch, distributed over the data axes.
    Batch @ data,
    /// Positions of a text, distributed over the ranks of `cp`.
    Seq @ cp,
    /// Residual stream.
    Hidden,
    /// Hidden layer of the MLP.
    Ffn,
    /// Attention heads.
    Heads,
    /// Elements of one head.
    HeadDim,
    /// Token ids.
    Vocab,
    /// Labels.
    Classes,
}

/// The residual stream, which is sequence-parallel outside of tensor-parallel regions.
pub type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

/// The stream, and the positions that are not padding.
pub type Flow = (Stream, Padding<(Batch, Seq)>);

/// The tokens, and the positions that are not padding.
pub type TextTokens = (Tokens<(Batch, Seq)>, Padding<(Batch, Seq)>);
