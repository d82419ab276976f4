//! The layers of the encoder of a T5.

use meshwright::prelude::*;

use super::dims::{
    Buckets, Ffn, Flow, HeadDim, Heads, Hidden, Source, SourcePadding, SourceStream,
};

/// MLP with a ReLU, or gated by a GELU.
#[model]
pub struct SourceMlp {
    /// The factor behind a GELU, in a gated MLP.
    #[sharded(tp = "col")]
    gate: Option<Linear<Hidden, Ffn>>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    inner_dropout: Dropout,
    #[sharded(tp = "row", scatter = Source)]
    down: Linear<Ffn, Hidden>,
    dropout: Dropout,
}

#[forward]
impl SourceMlp {
    /// Returns the stream that the MLP adds.
    pub fn forward(&self, x: &SourceStream) -> SourceStream {
        let up = self.up.forward(x);
        let inside = match &self.gate {
            Some(gate) => gate.forward(x).gelu_tanh() * up,
            None => up.relu(),
        };
        self.dropout.forward(&self.down.forward(&self.inner_dropout.forward(&inside)))
    }
}

/// Bidirectional attention with biases by distance, which all layers share.
#[model]
pub struct SourceAttention {
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Linear<Hidden, (Heads, HeadDim)>,
    #[shared]
    #[sharded(tp = "col")]
    bias: RelativeBias<Buckets, Heads>,
    /// The attention itself, without projections.
    pub core: Attention<Heads, Heads, HeadDim, Bidirectional>,
    #[sharded(tp = "row", scatter = Source)]
    o: Linear<(Heads, HeadDim), Hidden>,
    dropout: Dropout,
}

#[forward]
impl SourceAttention {
    /// Returns the stream that the attention adds.
    pub fn forward(&self, (x, padding): &(SourceStream, SourcePadding)) -> SourceStream {
        let (q, k, v) = (self.q.forward(x), self.k.forward(x), self.v.forward(x));
        let attended = self.core.forward(&(q, k, v, (padding, &self.bias)));
        self.dropout.forward(&self.o.forward(&attended))
    }
}

/// Layer of the encoder, which passes the stream of the decoder on.
#[model]
pub struct EncoderLayer {
    attn_norm: RmsNorm<Hidden>,
    /// The attention, with its projections.
    pub attn: SourceAttention,
    mlp_norm: RmsNorm<Hidden>,
    /// The feed-forward.
    pub mlp: SourceMlp,
}

#[forward]
impl EncoderLayer {
    /// Returns the streams after the layer.
    pub fn forward(&self, (x, target, padding): &Flow) -> Flow {
        let normed = self.attn_norm.forward(x);
        let x = x + self.attn.forward(&(normed, padding.clone()));
        let x = &x + self.mlp.forward(&self.mlp_norm.forward(&x));
        (x, target.clone(), padding.clone())
    }
}
