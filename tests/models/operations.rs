//! A model with one layer of each kind, and parameters as inputs of the other operations.

use meshwright::prelude::*;

dims! {
    /// Samples; one per rank, so that a parameter's gradient is the gradient of the operation's input.
    Batch @ data,
    /// Positions.
    Seq,
    /// Input dim of most operations.
    Hidden,
    /// Output dim of some operations.
    Ffn,
    /// Query heads.
    Heads,
    /// Key-value heads.
    KvHeads,
    /// Elements of one head.
    HeadDim,
    /// Token ids.
    Vocab,
    /// Positions of the sequence that cross attention reads.
    Memory,
    /// Buckets of relative positions.
    Buckets,
}

/// A tensor shaped like a residual stream.
pub type Stream = Tensor<(Batch, Seq, Hidden)>;

/// The parameters and layers of all operations.
#[model]
pub struct Operations {
    /// The input of operations: a parameter, so that it has a gradient.
    pub input: Param<(Seq, Hidden)>,
    /// A second input.
    pub other: Param<(Seq, Hidden)>,
    /// A vector.
    pub gain: Param<(Hidden,)>,
    /// A matrix for hand-written contractions.
    pub matrix: Param<(Hidden, Ffn)>,
    /// Layers.
    pub rms_norm: RmsNorm<Hidden>,
    /// Layers.
    pub offset_norm: RmsNorm<Hidden>,
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
    /// Projections into heads.
    pub q: Linear<Hidden, (Heads, HeadDim)>,
    /// Projections into heads.
    pub k: Linear<Hidden, (KvHeads, HeadDim)>,
    /// Projections into heads.
    pub v: Linear<Hidden, (KvHeads, HeadDim)>,
    /// Layers.
    pub rope: Rope<HeadDim>,
    /// Layers.
    pub attention: Attention<Heads, KvHeads, HeadDim>,
    /// Values with wider heads.
    pub wide_v: Linear<Hidden, (KvHeads, Hidden)>,
    /// Attention with a window, a soft cap and a scale, by options of its own.
    pub windowed: Attention<Heads, KvHeads, HeadDim>,
    /// Attention that drops weights, by options of its own.
    pub dropped: Attention<Heads, KvHeads, HeadDim>,
    /// Attention with values of another width.
    pub wide: Attention<Heads, KvHeads, HeadDim, Causal, Hidden>,
    /// Attention for encoders, and cross attention.
    pub bidirectional: Attention<Heads, KvHeads, HeadDim, Bidirectional>,
    /// Optional operands of attention.
    pub alibi: Alibi<Heads>,
    /// Optional operands of attention.
    pub relative: RelativeBias<Buckets, Heads>,
    /// Optional operands of attention.
    pub sinks: AttentionSinks<Heads>,
    /// Depthwise convolution.
    pub causal_conv: CausalConv<Hidden, 3>,
    /// Convolution along the whole sequence.
    pub conv1d: Conv1d<Hidden, Ffn, 3, 2, 1>,
    /// Out of heads.
    pub o: Linear<(Heads, HeadDim), Hidden>,
}
