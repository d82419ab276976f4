//! A `forward` without a body of a model without stages.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn, Vocab }

type Ids = Tokens<(Batch, Seq)>;
type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

#[model]
struct Block {
    norm: RmsNorm<Hidden>,
}

#[forward]
impl Block {
    fn forward(&self, x: &Stream) -> Stream {
        x + self.norm.forward(x)
    }
}

#[model]
struct Net {
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    blocks: Stack<Block>,
}

#[forward]
impl Net {
    fn forward(&self, x: &Ids) -> Stream;
}

fn main() {}
