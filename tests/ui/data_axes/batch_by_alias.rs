//! A batch over `fsdp` alone, by an alias.

use meshwright::checkpoint::hf::LlamaConfig;
use meshwright::prelude::*;

dims! { Samples @ fsdp, Seq, Vocab, Hidden }

type Batch = Samples;

#[model]
struct Lm {
    embed: Embedding<Vocab, Hidden>,
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl Lm {
    fn forward(&self, x: &Tokens<(Batch, Seq)>) -> Tensor<(Batch, Seq, Hidden)> {
        self.embed.forward(x)
    }
}

impl LanguageModel for Lm {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = LlamaConfig;

    const HF_NAMES: &'static [HfName] = &[];

    fn sizes(_: &LlamaConfig) -> Sizes {
        Sizes::new()
    }

    fn loss_of_output(
        &self,
        x: &Tensor<(Batch, Seq, Hidden)>,
        targets: &Targets<(Batch, Seq)>,
    ) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x)
    }
}

fn main() {}
