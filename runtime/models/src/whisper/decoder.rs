//! The layers of the decoder of a Whisper.

use meshwright::prelude::*;

use super::dims::{Ffn, Flow, HeadDim, Heads, Hidden, Target, TargetStream};

/// MLP with biases.
#[model]
pub struct TargetMlp {
    #[sharded(tp = "col")]
    up: Affine<Hidden, Ffn>,
    #[sharded(tp = "row", scatter = Target)]
    down: Affine<Ffn, Hidden>,
}

#[forward]
impl TargetMlp {
    /// Returns the stream that the MLP adds.
    pub fn forward(&self, x: &TargetStream) -> TargetStream {
        self.down.forward(&self.up.forward(x).gelu())
    }
}

/// Causal attention, with biases of all but the keys.
#[model]
pub struct TargetAttention {
    #[sharded(tp = "col")]
    q: Affine<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Affine<Hidden, (Heads, HeadDim)>,
    /// The attention itself, without projections.
    pub core: Attention<Heads, Heads, HeadDim>,
    #[sharded(tp = "row", scatter = Target)]
    o: Affine<(Heads, HeadDim), Hidden>,
}

#[forward]
impl TargetAttention {
    /// Returns the stream that the attention adds.
    pub fn forward(&self, x: &TargetStream) -> TargetStream {
        let (q, k, v) = (self.q.forward(x), self.k.forward(x), self.v.forward(x));
        self.o.forward(&self.core.forward(&(q, k, v)))
    }
}

/// Attention to the output of the encoder.
#[model]
pub struct CrossAttention {
    #[sharded(tp = "col")]
    q: Affine<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Affine<Hidden, (Heads, HeadDim)>,
    /// The attention itself, without projections.
    pub core: Attention<Heads, Heads, HeadDim, Bidirectional>,
    #[sharded(tp = "row", scatter = Target)]
    o: Affine<(Heads, HeadDim), Hidden>,
}

#[forward]
impl CrossAttention {
    /// Returns what the attention adds to the stream of the decoder.
    pub fn forward(&self, (source, x): &Flow) -> TargetStream {
        let (q, k, v) = (self.q.forward(x), self.k.forward(source), self.v.forward(source));
        self.o.forward(&self.core.forward(&(q, k, v)))
    }
}

/// Layer of the decoder, which passes the output of the encoder on.
#[model]
pub struct DecoderLayer {
    attn_norm: LayerNorm<Hidden>,
    /// The attention to the text, with its projections.
    pub attn: TargetAttention,
    cross_norm: LayerNorm<Hidden>,
    /// The attention to the clip, with its projections.
    pub cross: CrossAttention,
    mlp_norm: LayerNorm<Hidden>,
    /// The feed-forward.
    pub mlp: TargetMlp,
}

#[forward]
impl DecoderLayer {
    /// Returns the streams after the layer.
    pub fn forward(&self, (source, x): &Flow) -> Flow {
        let x = x + self.attn.forward(&self.attn_norm.forward(x));
        let x = &x + self.cross.forward(&(source.clone(), self.cross_norm.forward(&x)));
        let x = &x + self.mlp.forward(&self.mlp_norm.forward(&x));
        (source.clone(), x)
    }
}
