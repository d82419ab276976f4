//! The layers of the encoder of a Whisper.

use meshwright::prelude::*;

use super::dims::{Flow, Hidden, Source, SourceFfn, SourceHeadDim, SourceHeads, SourceStream};

/// MLP with biases.
#[model]
pub struct SourceMlp {
    #[sharded(tp = "col")]
    up: Affine<Hidden, SourceFfn>,
    #[sharded(tp = "row", scatter = Source)]
    down: Affine<SourceFfn, Hidden>,
}

#[forward]
impl SourceMlp {
    /// Returns the stream that the MLP adds.
    pub fn forward(&self, x: &SourceStream) -> SourceStream {
        self.down.forward(&self.up.forward(x).gelu())
    }
}

/// Bidirectional attention, with biases of all but the keys.
#[model]
pub struct SourceAttention {
    #[sharded(tp = "col")]
    q: Affine<Hidden, (SourceHeads, SourceHeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (SourceHeads, SourceHeadDim)>,
    #[sharded(tp = "col")]
    v: Affine<Hidden, (SourceHeads, SourceHeadDim)>,
    /// The attention itself, without projections.
    pub core: Attention<SourceHeads, SourceHeads, SourceHeadDim, Bidirectional>,
    #[sharded(tp = "row", scatter = Source)]
    o: Affine<(SourceHeads, SourceHeadDim), Hidden>,
}

#[forward]
impl SourceAttention {
    /// Returns the stream that the attention adds.
    pub fn forward(&self, x: &SourceStream) -> SourceStream {
        let (q, k, v) = (self.q.forward(x), self.k.forward(x), self.v.forward(x));
        self.o.forward(&self.core.forward(&(q, k, v)))
    }
}

/// Layer of the encoder, which passes the stream of the decoder on.
#[model]
pub struct EncoderLayer {
    attn_norm: LayerNorm<Hidden>,
    /// The attention, with its projections.
    pub attn: SourceAttention,
    mlp_norm: LayerNorm<Hidden>,
    /// The feed-forward.
    pub mlp: SourceMlp,
}

#[forward]
impl EncoderLayer {
    /// Returns the streams after the layer.
    pub fn forward(&self, (x, target): &Flow) -> Flow {
        let x = x + self.attn.forward(&self.attn_norm.forward(x));
        let x = &x + self.mlp.forward(&self.mlp_norm.forward(&x));
        (x, target.clone())
    }
}
