//! Costs that are no positive numbers.

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
    #[pipeline_stage(cost = 0)]
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    #[pipeline_stage(cost = "2")]
    blocks: Stack<Block>,
}

#[forward]
impl Net {
    fn forward(&self, x: &Ids) -> Stream;
}

fn main() {}
