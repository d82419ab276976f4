//! An embedding is cut along the vocabulary.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Vocab }

#[model]
struct Model {
    #[sharded(tp = "row")]
    embed: Embedding<Vocab, Hidden>,
}

#[forward]
impl Model {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Tensor<(Batch, Seq, Hidden)> {
        self.embed.forward(tokens)
    }
}

fn main() {}
