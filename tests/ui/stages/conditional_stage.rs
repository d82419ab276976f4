//! A boundary that breaks because the stage between is left out.

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
struct Cut {}

#[forward]
impl Cut {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Stream {
        x.slice(Seq, Tp)
    }
}

#[model]
struct Net {
    #[pipeline_stage]
    #[sharded(tp = "vocab")]
    embed: Embedding<Vocab, Hidden>,
    #[cfg(any())]
    #[pipeline_stage]
    cut: Cut,
    #[pipeline_stage]
    blocks: Stack<Block>,
}

#[forward]
impl Net {
    fn forward(&self, x: &Ids) -> Stream;
}

fn main() {}
