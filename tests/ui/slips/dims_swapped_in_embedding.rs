//! Swapped dims of an embedding.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Vocab }

type Stream = Tensor<(Batch, Seq, Hidden)>;

#[model]
struct Net {
    embed: Embedding<Hidden, Vocab>,
    norm: RmsNorm<Hidden>,
}

#[forward]
impl Net {
    fn forward(&self, ids: &Tokens<(Batch, Seq)>) -> Stream {
        self.norm.forward(&self.embed.forward(ids))
    }
}

fn main() {}
