//! A written `forward` of a model with stages.

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
    #[pipeline_stage]
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    #[pipeline_stage]
    blocks: Stack<Block>,
}

#[forward]
impl Net {
    fn forward(&self, x: &Ids) -> Stream {
        self.blocks.forward(&self.embed.forward(x))
    }
}

fn main() {}
