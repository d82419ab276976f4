//! A Llama for long sequences, whose layers are recomputed without their attention.
//!
//! Backward recomputes each layer from its input. The output of attention is saved, so that the keys and values of a
//! context-parallel attention do not travel again.

use meshwright::models::llama::{Batch, Block, Hidden, Llama, LlamaConfig, Seq, Stream, Vocab};
use meshwright::prelude::*;

/// The model: blocks of a [`Llama`]. Backward keeps their inputs and the results of attention.
#[model]
pub struct LongLlama {
    #[pipeline_stage]
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    #[pipeline_stage]
    #[recompute(save = [attn.core])]
    blocks: Stack<Block>,
    #[pipeline_stage]
    norm: RmsNorm<Hidden>,
    #[pipeline_stage(last)]
    #[sharded(tp = "vocab")]
    #[tied(embed, when = "tie_word_embeddings")]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl LongLlama {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream;
}

impl LanguageModel for LongLlama {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = LlamaConfig;

    fn hf_names(config: &LlamaConfig) -> Vec<HfName> {
        config.hf_names()
    }

    fn sizes(config: &LlamaConfig) -> Sizes {
        Llama::sizes(config)
    }

    fn loss_of_output(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x).gather(Vocab)
    }
}
