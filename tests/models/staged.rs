//! A GPT with pipeline stages, with dropout in front of the layers and in them, and an untied head.

use meshwright::checkpoint::hf::Gpt2Config;
use meshwright::prelude::*;

use super::gpt::{Batch, Block, Gpt, Hidden, Seq, Stream, Vocab};

/// Embedding with dropout.
#[model]
pub struct Front {
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    dropout: Dropout,
}

#[forward]
impl Front {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream {
        self.dropout.forward(&self.embed.forward(tokens))
    }
}

/// The model.
#[model]
pub struct StagedGpt {
    #[pipeline_stage]
    front: Front,
    #[pipeline_stage]
    blocks: Stack<Block>,
    #[pipeline_stage]
    norm: LayerNorm<Hidden>,
    #[pipeline_stage(last)]
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl StagedGpt {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream;
}

impl LanguageModel for StagedGpt {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = Gpt2Config;

    const HF_NAMES: &'static [HfName] = &[];

    fn sizes(config: &Gpt2Config) -> Sizes {
        let mut sizes = Gpt::sizes(config);
        sizes.dropout = 0.25;
        sizes
    }

    fn loss_of_output(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x).gather(Vocab)
    }
}
