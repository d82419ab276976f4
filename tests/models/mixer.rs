//! A model with every operation that the Llama lacks: LayerNorm, biases before and after a reduction, dropout on split
//! and whole tensors, hand-written contractions whose partial sums are combined, gathers, slices, sums and means, and a
//! cross-entropy over split logits.

use meshwright::prelude::*;

dims! {
    /// Sequences of the global batch.
    Batch @ data,
    /// Positions.
    Seq,
    /// Residual stream.
    Hidden,
    /// Hidden layer of a feed-forward.
    Ffn,
    /// Token ids.
    Vocab,
}

/// The residual stream.
pub type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

/// Feed-forward with biases and dropout.
#[model]
pub struct Mlp {
    norm: LayerNorm<Hidden>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "col")]
    up_bias: Bias<Ffn>,
    inner_dropout: Dropout,
    #[sharded(tp = "row", scatter = Seq)]
    down: Linear<Ffn, Hidden>,
    down_bias: Bias<Hidden>,
    dropout: Dropout,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Stream) -> Stream {
        let inner = self.up_bias.forward(&self.up.forward(&self.norm.forward(x))).gelu();
        let sum = self.down.forward(&self.inner_dropout.forward(&inner));
        x + self.dropout.forward(&self.down_bias.forward(&sum))
    }
}

/// Parameters as fields, and hand-written contractions.
#[model]
pub struct Mix {
    #[sharded(tp = "col")]
    read: Param<(Hidden, Ffn)>,
    #[sharded(tp = "col")]
    shift: Param<(Ffn,)>,
    #[sharded(tp = "row")]
    write: Param<(Ffn, Hidden)>,
    #[sharded(tp = "row")]
    write_gated: Param<(Ffn, Hidden)>,
    /// Applied to the stream and to a whole tensor.
    gain: Param<(Hidden,)>,
    whole: Param<(Hidden, Hidden)>,
    /// Never used.
    #[allow(dead_code, reason = "a parameter without a use is what it is for")]
    unused: Param<(Hidden,)>,
}

#[forward]
impl Mix {
    fn forward(&self, x: &Stream) -> Stream {
        let inner = x.contract(&self.read).tanh() + &self.shift;
        let gated = inner.relu() / (inner.square() + 0.5) + inner.sigmoid() / &self.shift;
        let partial = inner.contract(&self.write) * 0.5 + gated.contract(&self.write_gated)
            - inner.scale(0.25).contract(&self.write_gated);
        let sum = partial.start_reduce_scatter(Seq);
        let squares = gated.contract(&self.write).reduce_scatter(Seq).tanh();

        let scaled = x * &self.gain;
        let whole = x.gather(Seq).contract(&self.whole).gelu_tanh() - &self.gain;
        let whole = whole * &self.gain + scaled.start_gather(Seq).wait();
        sum.wait() * &self.gain + squares + x * whole.slice(Seq, Tp)
    }
}

/// The model.
#[model]
pub struct Mixer {
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    embed_dropout: Dropout,
    blocks: Stack<Mlp>,
    mix: Mix,
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
    #[sharded(tp = "vocab")]
    loss: CrossEntropy<Vocab>,
    #[sharded(tp = "col")]
    gate: Linear<Hidden, Ffn>,
    /// Used in every second step, alone in its unit.
    sometimes: Bias<Hidden>,
}

#[forward]
impl Mixer {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream {
        let x = self.embed_dropout.forward(&self.embed.forward(tokens));
        self.mix.forward(&self.blocks.forward(&x))
    }
}

impl Mixer {
    /// Computes the cross-entropy, plus the mean of sums and means of a gate over its split dim.
    pub fn loss(
        &self,
        tokens: &Tokens<(Batch, Seq)>,
        targets: &Targets<(Batch, Seq)>,
        step: u64,
    ) -> Loss<(Batch, Seq)> {
        let x = self.forward(tokens);
        let x = if step % 2 == 1 { self.sometimes.forward(&x) } else { x };
        let gate = self.gate.forward(&x).silu();
        let sum = gate.sum(Ffn).start_all_reduce();
        let mean = (gate.mean(Ffn) + (&gate * &gate).mean(Ffn)).all_reduce();
        let logits = self.head.logits(&x);
        // Small, because the gradient of a saturated tanh is zero.
        let penalty = (sum.wait().scale(0.01) + (&mean * &mean).scale(0.01)).tanh().exp();
        self.loss.forward(&logits, targets) + Loss::mean_of(&penalty)
    }
}

/// A model with sums over the samples of all ranks, and parameters applied to the results, which are equal on all
/// ranks.
#[model]
pub struct Pool {
    before: Linear<Hidden, Hidden>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row")]
    down: Linear<Ffn, Hidden>,
    bias: Bias<Hidden>,
}

impl Pool {
    /// Computes the loss from the mean of `x` over all samples.
    pub fn loss(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Loss<(Seq, Hidden)> {
        let pooled = self.before.forward(x).tanh().mean(Batch).all_reduce();
        let y = self.down.forward(&self.up.forward(&pooled).silu());
        Loss::mean_of(&self.bias.forward(&(y + pooled)).exp())
    }
}
