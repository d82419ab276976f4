//! A model with convolutions and shifts along a sequence that is split over tp.

use meshwright::prelude::*;

dims! {
    /// Sequences of the global batch.
    Batch @ data,
    /// Positions.
    Seq,
    /// Residual stream.
    Hidden,
    /// Heads.
    Heads,
    /// Elements of a head.
    HeadDim,
    /// Token ids.
    Vocab,
}

/// The residual stream.
pub type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

/// A gated short convolution, along the split sequence and of split channels.
#[model]
pub struct Mixing {
    norm: RmsNorm<Hidden>,
    conv: CausalConv<Hidden, 3>,
    bias: Bias<Hidden>,
    #[sharded(tp = "col")]
    gate: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    of_heads: CausalConv<(Heads, HeadDim), 4>,
    #[sharded(tp = "row", scatter = Seq)]
    down: Linear<(Heads, HeadDim), Hidden>,
}

#[forward]
impl Mixing {
    fn forward(&self, x: &Stream) -> Stream {
        let h = self.bias.forward(&self.conv.forward(&self.norm.forward(x))).silu();
        let gate = self.gate.forward(&h).sigmoid();
        let heads = self.of_heads.forward(&self.up.forward(&h)) * gate;
        x + self.down.forward(&(&heads + heads.shift(Seq, -2).tanh()))
    }
}

/// The model.
#[model]
pub struct Convolutional {
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    blocks: Stack<Mixing>,
    scale: Param<(Hidden,)>,
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
    #[sharded(tp = "vocab")]
    loss: CrossEntropy<Vocab>,
}

impl Convolutional {
    /// Computes the cross-entropy.
    pub fn loss(
        &self,
        tokens: &Tokens<(Batch, Seq)>,
        targets: &Targets<(Batch, Seq)>,
    ) -> Loss<(Batch, Seq)> {
        let x = self.embed.forward(tokens);
        let x = &x + x.shift(Seq, 1) * &self.scale;
        let x = self.blocks.forward(&x);
        let x = &x + x.shift(Seq, -1).tanh() * &self.scale + x.shift(Seq, 2).silu();
        self.loss.forward(&self.head.logits(&x), targets)
    }
}
