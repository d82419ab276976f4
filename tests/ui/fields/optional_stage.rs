//! Optional and repeated pipeline stages.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Vocab }

type Stream = Tensor<(Batch, Seq, Hidden)>;

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
    embed: Embedding<Vocab, Hidden>,
    #[pipeline_stage]
    blocks: Vec<Block>,
    #[pipeline_stage]
    norm: Option<RmsNorm<Hidden>>,
}

#[forward]
impl Net {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream;
}

fn main() {}
