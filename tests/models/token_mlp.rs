//! A model that treats the tokens of a sequence alike, so that the sequence can be distributed over ranks without a
//! context-parallel attention.

use meshwright::prelude::*;

dims! {
    /// Sequences of the global batch.
    Batch @ data,
    /// Positions, distributed over the ranks of a sequence.
    Seq @ cp,
    /// Residual stream.
    Hidden,
    /// Hidden layer of a feed-forward.
    Ffn,
    /// Token ids.
    Vocab,
    /// Rows of the table of positions.
    Positions,
}

/// The residual stream.
pub type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

/// Feed-forward with dropout.
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
    dropout: Dropout,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Stream) -> Stream {
        let inner = self.up_bias.forward(&self.up.forward(&self.norm.forward(x))).gelu();
        let sum = self.down.forward(&self.inner_dropout.forward(&inner));
        x + self.dropout.forward(&sum)
    }
}

/// Splits of distributed dims over tp, and their gathers.
#[model]
pub struct Slices {
    whole: Param<(Hidden, Hidden)>,
    gain: Param<(Hidden,)>,
    dropout: Dropout,
}

#[forward]
impl Slices {
    fn forward(&self, x: &Stream) -> Stream {
        let whole = x.gather(Seq);
        let tokens = self.whole_of(&whole).slice(Seq, Tp) * &self.gain;
        let samples = self.dropout.forward(&whole.slice(Batch, Tp).tanh()) * &self.gain;
        tokens + samples.contract(&self.whole).gather(Batch).slice(Seq, Tp)
    }
}

impl Slices {
    fn whole_of(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
        x.contract(&self.whole).tanh()
    }
}

/// The model.
#[model]
pub struct TokenMlp {
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    positions: LearnedPositions<Positions, Hidden>,
    blocks: Stack<Mlp>,
    slices: Slices,
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
    #[sharded(tp = "vocab")]
    loss: CrossEntropy<Vocab>,
    gate: Linear<Hidden, Hidden>,
}

impl TokenMlp {
    /// Computes the cross-entropy.
    pub fn loss(
        &self,
        tokens: &Tokens<(Batch, Seq)>,
        targets: &Targets<(Batch, Seq)>,
    ) -> Loss<(Batch, Seq)> {
        let x = self.positions.forward(&self.embed.forward(tokens));
        let x = self.slices.forward(&self.blocks.forward(&x));
        self.loss.forward(&self.head.logits(&x), targets)
    }

    /// Computes a loss from the mean of `x` over each sequence, which is the same on all ranks of cp.
    pub fn pooled_loss(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Loss<(Batch, Hidden)> {
        let pooled = self.slices.whole_of(x).mean(Seq).all_reduce();
        Loss::mean_of(&self.gate.forward(&pooled).exp())
    }
}
