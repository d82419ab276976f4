//! Layers of a BERT: norms after each branch, biases everywhere, and attention to both sides.

use meshwright::prelude::*;

use super::model::{
    Ffn, Flow, HeadDim, Heads, Hidden, Positions, Seq, Stream, TextTokens, TokenTypes, Vocab,
};

/// The sum of the embeddings of tokens, their types and their positions, normalized.
#[model]
pub struct Embeddings {
    /// The table of tokens.
    #[sharded(tp = "vocab", scatter = Seq)]
    pub word: Embedding<Vocab, Hidden>,
    token_type: Embedding<TokenTypes, Hidden>,
    position: LearnedPositions<Positions, Hidden>,
    norm: LayerNorm<Hidden>,
    dropout: Dropout,
}

#[forward]
impl Embeddings {
    /// Returns the stream before the first block.
    pub fn forward(&self, (ids, types, padding): &TextTokens) -> Flow {
        let types = self.token_type.forward(types).slice(Seq, Tp);
        let x = self.position.forward(&(self.word.forward(ids) + types));
        (self.dropout.forward(&self.norm.forward(&x)), padding.clone())
    }
}

/// MLP with exact GELU.
#[model]
pub struct Mlp {
    #[sharded(tp = "col")]
    up: Affine<Hidden, Ffn>,
    #[sharded(tp = "row", scatter = Seq)]
    down: Affine<Ffn, Hidden>,
    dropout: Dropout,
}

#[forward]
impl Mlp {
    /// Returns the stream that the MLP adds.
    pub fn forward(&self, x: &Stream) -> Stream {
        self.dropout.forward(&self.down.forward(&self.up.forward(x).gelu()))
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
    /// The attention itself, without projections.
    #[sharded(cp = "ring")]
    pub core: Attention<Heads, Heads, HeadDim, Bidirectional>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Affine<(Heads, HeadDim), Hidden>,
    dropout: Dropout,
}

#[forward]
impl SelfAttention {
    /// Returns the stream that the attention adds.
    pub fn forward(&self, (x, padding): &Flow) -> Stream {
        let (q, k, v) = (self.q.forward(x), self.k.forward(x), self.v.forward(x));
        let attended = self.core.forward(&(q, k, v, padding));
        self.dropout.forward(&self.o.forward(&attended))
    }
}

/// Transformer block with a norm after each addition to the stream.
#[model]
pub struct Block {
    /// The attention, with its projections.
    pub attn: SelfAttention,
    attn_norm: LayerNorm<Hidden>,
    /// The feed-forward. Matmul results are saved; GELU, which is as wide but far cheaper, is recomputed.
    #[recompute(save = [up, down])]
    pub mlp: Mlp,
    mlp_norm: LayerNorm<Hidden>,
}

#[forward]
impl Block {
    /// Returns the stream after the block.
    pub fn forward(&self, flow: &Flow) -> Flow {
        let (x, padding) = flow;
        let x = self.attn_norm.forward(&(x + self.attn.forward(flow)));
        let x = self.mlp_norm.forward(&(&x + self.mlp.forward(&x)));
        (x, padding.clone())
    }
}
