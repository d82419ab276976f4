//! A language model with frozen fields: embedding and head, all layers of a lower stack, and some fields of the layers
//! above, on both sides of trained ones.

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
    /// Layers of the lower stack.
    pub Lower,
    /// Token ids.
    pub Vocab,
}

/// The residual stream.
pub type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

/// A feed-forward network with a residual connection.
#[model]
pub struct Mlp {
    #[frozen]
    norm: RmsNorm<Hidden>,
    #[frozen]
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "col")]
    bias: Bias<Ffn>,
    #[frozen]
    #[sharded(tp = "col")]
    gain: Param<(Ffn,)>,
    #[sharded(tp = "row", scatter = Seq)]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Stream) -> Stream {
        let up = self.bias.forward(&self.up.forward(&self.norm.forward(x)));
        x + self.down.forward(&(up.gelu() * &self.gain))
    }
}

/// The model.
#[model]
pub struct Frozen {
    #[pipeline_stage]
    #[frozen]
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    #[pipeline_stage]
    #[frozen]
    lower: Stack<Mlp, Lower>,
    #[pipeline_stage]
    blocks: Stack<Mlp>,
    #[pipeline_stage]
    norm: LayerNorm<Hidden>,
    #[pipeline_stage(last)]
    #[frozen]
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl Frozen {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream;
}

impl LanguageModel for Frozen {
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
            .with(Lower, 2)
            .with(Layers, config.layers);
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
