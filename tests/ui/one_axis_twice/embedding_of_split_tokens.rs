//! A vocabulary-parallel embedding of tokens that are split over its axis.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Vocab, Hidden }

#[model]
struct Lm {
    #[sharded(tp = "vocab")]
    embed: Embedding<Vocab, Hidden>,
}

#[forward]
impl Lm {
    fn forward(
        &self,
        tokens: &Tokens<(Batch, Split<Seq, Tp>)>,
    ) -> Tensor<(Batch, Split<Seq, Tp>, Hidden)> {
        self.embed.forward(tokens)
    }
}

fn main() {}
