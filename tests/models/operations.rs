//! One of each operation with parameters, and parameters in every shape that the others take as inputs.

use meshwright::prelude::*;

dims! {
    /// Samples; one here, so that a parameter's gradient is that of the operation's input.
    Batch @ data,
    /// Positions.
    Seq,
    /// What most operations read.
    Hidden,
    /// What some write.
    Ffn,
    /// Query heads.
    Heads,
    /// Key-value heads.
    KvHeads,
    /// Elements of one head.
    HeadDim,
    /// Token ids.
    Vocab,
}

/// A tensor like the residual stream.
pub type Stream = Tensor<(Batch, Seq, Hidden)>;

/// What the operations are made of.
#[model]
pub struct Operations {
    /// The input of the others: a parameter, so that it has a gradient.
    pub input: Param<(Seq, Hidden)>,
    /// A second input.
    pub other: Param<(Seq, Hidden)>,
    /// A vector.
    pub gain: Param<(Hidden,)>,
    /// A matrix for contractions of the author's own.
    pub matrix: Param<(Hidden, Ffn)>,
    /// Layers.
    pub rms_norm: RmsNorm<Hidden>,
    /// Layers.
    pub layer_norm: LayerNorm<Hidden>,
    /// Layers.
    pub linear: Linear<Hidden, Ffn>,
    /// Layers.
    pub bias: Bias<Hidden>,
    /// Layers.
    pub dropout: Dropout,
    /// Layers.
    pub embed: Embedding<Vocab, Hidden>,
    /// Layers.
    pub head: LmHead<Hidden, Vocab>,
    /// Layers.
    pub loss: CrossEntropy<Vocab>,
    /// Into heads.
    pub q: Linear<Hidden, (Heads, HeadDim)>,
    /// Into heads.
    pub k: Linear<Hidden, (KvHeads, HeadDim)>,
    /// Into heads.
    pub v: Linear<Hidden, (KvHeads, HeadDim)>,
    /// Layers.
    pub rope: Rope<HeadDim>,
    /// Layers.
    pub attention: Attention<Heads, KvHeads, HeadDim>,
    /// Out of heads.
    pub o: Linear<(Heads, HeadDim), Hidden>,
}
