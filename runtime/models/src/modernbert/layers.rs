//! Layers of a ModernBERT: norms before each branch, rotary positions, and attention to both sides, in windows in some
//! layers.

use meshwright::prelude::*;

use super::model::{Ffn, Flow, HeadDim, Heads, Hidden, Seq, Stream, TextTokens, Vocab};

/// The embeddings of tokens, normalized.
#[model]
pub struct Embeddings {
    /// The table of tokens.
    #[sharded(tp = "vocab", scatter = Seq)]
    pub word: Embedding<Vocab, Hidden>,
    norm: LayerNorm<Hidden>,
}

#[forward]
impl Embeddings {
    /// Returns the stream before the first block.
    pub fn forward(&self, (ids, padding): &TextTokens) -> Flow {
        (self.norm.forward(&self.word.forward(ids)), padding.clone())
    }
}

/// MLP with a gate of exact GELU.
#[model]
pub struct Mlp {
    #[sharded(tp = "col")]
    gate: Affine<Hidden, Ffn>,
    #[sharded(tp = "col")]
    up: Affine<Hidden, Ffn>,
    #[sharded(tp = "row", scatter = Seq)]
    down: Affine<Ffn, Hidden>,
}

#[forward]
impl Mlp {
    /// Returns the stream that the MLP adds.
    pub fn forward(&self, x: &Stream) -> Stream {
        self.down.forward(&(self.gate.forward(x).gelu() * self.up.forward(x)))
    }
}

/// Multi-head attention to the positions on both sides that are not padding.
#[model]
pub struct SelfAttention {
    #[sharded(tp = "col")]
    q: Affine<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Affine<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Affine<Hidden, (Heads, HeadDim)>,
    rope: Rope<HeadDim>,
    /// The attention itself, without projections.
    #[sharded(cp = "ring")]
    pub core: Attention<Heads, Heads, HeadDim, Bidirectional>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Affine<(Heads, HeadDim), Hidden>,
}

#[forward]
impl SelfAttention {
    /// Returns the stream that the attention adds.
    pub fn forward(&self, (x, padding): &Flow) -> Stream {
        let q = self.rope.forward(&self.q.forward(x));
        let k = self.rope.forward(&self.k.forward(x));
        let v = self.v.forward(x);
        self.o.forward(&self.core.forward(&(q, k, v, padding)))
    }
}

/// The first block, whose attention reads the stream as it is: the embeddings have a norm.
#[model]
pub struct FirstBlock {
    /// The attention, with its projections.
    pub attn: SelfAttention,
    mlp_norm: LayerNorm<Hidden>,
    /// The feed-forward.
    pub mlp: Mlp,
}

#[forward]
impl FirstBlock {
    /// Returns the stream after the block.
    pub fn forward(&self, flow: &Flow) -> Flow {
        let (x, padding) = flow;
        let x = x + self.attn.forward(flow);
        (&x + self.mlp.forward(&self.mlp_norm.forward(&x)), padding.clone())
    }
}

/// A block with norms before attention and feed-forward.
#[model]
pub struct LaterBlock {
    attn_norm: LayerNorm<Hidden>,
    /// The attention, with its projections.
    pub attn: SelfAttention,
    mlp_norm: LayerNorm<Hidden>,
    /// The feed-forward.
    pub mlp: Mlp,
}

#[forward]
impl LaterBlock {
    /// Returns the stream after the block.
    pub fn forward(&self, (x, padding): &Flow) -> Flow {
        let normalized = (self.attn_norm.forward(x), padding.clone());
        let x = x + self.attn.forward(&normalized);
        (&x + self.mlp.forward(&self.mlp_norm.forward(&x)), padding.clone())
    }
}

/// Transformer block.
#[model]
pub enum Block {
    /// The first layer.
    First(FirstBlock),
    /// One of the others.
    Later(LaterBlock),
}

/// The layers between the blocks and the weight of a head, for each token.
#[model]
pub struct PredictionHead {
    final_norm: LayerNorm<Hidden>,
    dense: Affine<Hidden, Hidden>,
    norm: LayerNorm<Hidden>,
}

#[forward]
impl PredictionHead {
    /// Returns the stream that the head reads.
    pub fn forward(&self, (x, _): &Flow) -> Stream {
        self.norm.forward(&self.dense.forward(&self.final_norm.forward(x)).gelu())
    }
}
