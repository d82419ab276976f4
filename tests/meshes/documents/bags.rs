//! A model whose layers read the documents of their tokens.

use meshwright::checkpoint::hf::Gpt2Config;
use meshwright::prelude::*;

dims! {
    Batch @ data,
    Seq,
    Positions,
    Hidden,
    Ffn,
    Vocab,
}

/// The residual stream.
pub type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

/// Adds learned positions within documents, and an MLP. Nothing reads along the sequence.
#[model]
pub struct Block {
    pub positions: LearnedPositions<Positions, Hidden>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row", scatter = Seq)]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Block {
    fn forward(&self, x: &Stream) -> Stream {
        let x = self.positions.forward(x);
        &x + self.down.forward(&self.up.forward(&x).gelu())
    }
}

/// A model whose blocks restart positions; documents cross its pipeline stages, and recomputed segments.
#[model]
pub struct Bags {
    #[pipeline_stage]
    #[sharded(tp = "vocab", scatter = Seq)]
    pub embed: Embedding<Vocab, Hidden>,
    #[pipeline_stage]
    #[recompute(every = 1)]
    pub blocks: Stack<Block>,
    #[pipeline_stage]
    norm: RmsNorm<Hidden>,
    #[pipeline_stage(last)]
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl Bags {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream;
}

impl LanguageModel for Bags {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = Gpt2Config;

    const HF_NAMES: &'static [HfName] = &[];

    fn sizes(config: &Gpt2Config) -> Sizes {
        Sizes::new()
            .with(Positions, config.positions)
            .with(Hidden, config.hidden)
            .with(Ffn, config.ffn)
            .with(Vocab, config.vocab)
            .with(Layers, config.layers)
    }

    fn loss_of_output(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x).gather(Vocab)
    }
}
