//! A language model whose layers are of two kinds, share a parameter, and begin as their attributes say.

use meshwright::checkpoint::hf::Gpt2Config;
use meshwright::prelude::*;

dims! {
    /// Sequences of the global batch.
    pub Batch @ data,
    /// Positions, distributed over the ranks of `cp`.
    pub Seq @ cp,
    /// Residual stream.
    pub Hidden,
    /// Hidden layer of the networks.
    pub Ffn,
    /// Token ids.
    pub Vocab,
}

/// The residual stream.
pub type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

/// A feed-forward network, whose result is multiplied by a gain that all layers share.
#[model]
pub struct Plain {
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row", scatter = Seq)]
    #[init(scaled)]
    down: Linear<Ffn, Hidden>,
    #[shared]
    #[init(normal(0.5))]
    gain: Param<(Hidden,)>,
}

#[forward]
impl Plain {
    fn forward(&self, x: &Stream) -> Stream {
        let inside = self.up.forward(&self.norm.forward(x)).gelu();
        x + self.down.forward(&inside) * &self.gain
    }
}

/// A gated feed-forward network with biases, which shares the gain.
#[model]
#[derive(Debug)]
pub struct Gated {
    norm: LayerNorm<Hidden>,
    #[sharded(tp = "col")]
    #[init(uniform(0.3))]
    up: (Linear<Hidden, Ffn>, Bias<Ffn>),
    #[sharded(tp = "col")]
    gate: Linear<Hidden, Ffn>,
    #[sharded(tp = "row", scatter = Seq)]
    down: Linear<Ffn, Hidden>,
    #[shared]
    gain: Param<(Hidden,)>,
}

#[forward]
impl Gated {
    fn forward(&self, x: &Stream) -> Stream {
        let normed = self.norm.forward(x);
        let (up, bias) = &self.up;
        let inside = bias.forward(&up.forward(&normed)) * self.gate.forward(&normed).silu();
        x + self.down.forward(&inside) * &self.gain
    }
}

/// A layer.
#[model]
pub enum Block {
    /// The network without a gate.
    Plain(Plain),
    /// The network with a gate.
    Gated(Gated),
}

/// The model.
#[model]
pub struct Kinds {
    #[pipeline_stage]
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    #[pipeline_stage]
    blocks: Stack<Block>,
    #[pipeline_stage]
    #[init(weight = constant(0.5), bias = ones)]
    norm: LayerNorm<Hidden>,
    #[pipeline_stage(last)]
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl Kinds {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream;
}

impl LanguageModel for Kinds {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = Gpt2Config;

    const HF_NAMES: &'static [HfName] = &[];

    fn sizes(config: &Gpt2Config) -> Sizes {
        let mut sizes = Sizes::new()
            .with(Hidden, config.hidden)
            .with(Ffn, config.ffn)
            .with(Vocab, config.vocab)
            .with(Layers, config.layers)
            .with_kinds("blocks", ["Plain", "Gated"])
            .with_init("head", Init::Uniform(0.4));
        sizes.init_std = 0.2;
        sizes
    }

    fn loss_of_output(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x).gather(Vocab)
    }
}
