//! A language model whose `forward` takes other tokens than its dims say.

use meshwright::prelude::*;
use meshwright::train::LlamaConfig;

dims! { Batch @ data, Seq, Length, Hidden, Vocab }

type Stream = Tensor<(Batch, Seq, Hidden)>;

#[model]
struct Lm {
    embed: Embedding<Vocab, Hidden>,
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl Lm {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream {
        self.embed.forward(tokens)
    }
}

impl LanguageModel for Lm {
    type Batch = Batch;
    type Seq = Length;
    type Vocab = Vocab;
    type Config = LlamaConfig;
    const HF_NAMES: &'static [HfName] = &[];

    fn sizes(_: &LlamaConfig) -> Sizes {
        Sizes::new()
    }

    fn loss_of_output(&self, _: &Stream, _: &Targets<(Batch, Length)>) -> Loss<(Batch, Length)> {
        unreachable!()
    }

    fn logits_of_output(&self, _: &Stream) -> Tensor<(Batch, Length, Vocab)> {
        unreachable!()
    }
}

fn main() {}
