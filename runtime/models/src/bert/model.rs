//! Dims of a BERT, and what its stages pass on.

use meshwright::prelude::*;

dims! {
    /// Texts of the global batch, distributed over the data axes.
    Batch @ data,
    /// Positions of a text, distributed over the ranks of `cp`.
    Seq @ cp,
    /// Rows of the table of positions: the longest text.
    Positions,
    /// Types of tokens, such as first and second text.
    TokenTypes,
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

/// The tokens, the type of each token, and the positions that are not padding.
pub type TextTokens = (Tokens<(Batch, Seq)>, Tokens<(Batch, Seq)>, Padding<(Batch, Seq)>);
