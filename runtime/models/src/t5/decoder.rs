//! The layers of the decoder of a T5.

use meshwright::prelude::*;

use super::dims::{Buckets, Ffn, Flow, HeadDim, Heads, Hidden, Target, TargetStream};

/// MLP with a ReLU, or gated by a GELU.
#[model]
pub struct TargetMlp {
    /// The factor behind a GELU, in a gated MLP.
    #[sharded(tp = "col")]
    gate: Option<Linear<Hidden, Ffn>>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    inner_dropout: Dropout,
    #[sharded(tp = "row", scatter = Target)]
    down: Linear<Ffn, Hidden>,
    dropout: Dropout,
}

#[forward]
impl TargetMlp {
    /// Returns the stream that the MLP adds.
    pub fn forward(&self, x: &TargetStream) -> TargetStream {
        let up = self.up.forward(x);
        let inside = match &self.gate {
            Some(gate) => gate.forward(x).gelu_tanh() * up,
            None => up.relu(),
        };
        self.dropout.forward(&self.down.forward(&self.inner_dropout.forward(&inside)))
    }
}

/// Causal attention with biases by distance, which all layers share.
#[model]
pub struct TargetAttention {
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
    pub core: Attention<Heads, Heads, HeadDim>,
    #[sharded(tp = "row", scatter = Target)]
    o: Linear<(Heads, HeadDim), Hidden>,
    dropout: Dropout,
}

#[forward]
impl TargetAttention {
    /// Returns the stream that the attention adds.
    pub fn forward(&self, x: &TargetStream) -> TargetStream {
        let (q, k, v) = (self.q.forward(x), self.k.forward(x), self.v.forward(x));
        let attended = self.core.forward(&(q, k, v, &self.bias));
        self.dropout.forward(&self.o.forward(&attended))
    }
}

/// Attention to the output of the encoder, without a bias.
#[model]
pub struct CrossAttention {
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Linear<Hidden, (Heads, HeadDim)>,
    /// The attention itself, without projections.
    pub core: Attention<Heads, Heads, HeadDim, Bidirectional>,
    #[sharded(tp = "row", scatter = Target)]
    o: Linear<(Heads, HeadDim), Hidden>,
    dropout: Dropout,
}

#[forward]
impl CrossAttention {
    /// Returns what the attention adds to the stream of the decoder.
    pub fn forward(&self, (source, x, padding): &Flow) -> TargetStream {
        let (q, k, v) = (self.q.forward(x), self.k.forward(source), self.v.forward(source));
        let attended = self.core.forward(&(q, k, v, padding));
        self.dropout.forward(&self.o.forward(&attended))
    }
}

/// Layer of the decoder, which passes the output of the encoder on.
#[model]
pub struct DecoderLayer {
    attn_norm: RmsNorm<Hidden>,
    /// The attention to the target, with its projections.
    pub attn: TargetAttention,
    cross_norm: RmsNorm<Hidden>,
    /// The attention to the source, with its projections.
    pub cross: CrossAttention,
    mlp_norm: RmsNorm<Hidden>,
    /// The feed-forward.
    pub mlp: TargetMlp,
}

#[forward]
impl DecoderLayer {
    /// Returns the streams after the layer.
    pub fn forward(&self, (source, x, padding): &Flow) -> Flow {
        let x = x + self.attn.forward(&self.attn_norm.forward(x));
        let normed = (source.clone(), self.cross_norm.forward(&x), padding.clone());
        let x = x + self.cross.forward(&normed);
        let x = &x + self.mlp.forward(&self.mlp_norm.forward(&x));
        (source.clone(), x, padding.clone())
    }
}
