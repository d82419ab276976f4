//! A boundary with two types, both behind aliases.

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

type Blocks = Stack<Block>;
type Embed = Embedding<Vocab, Hidden>;

#[model]
struct Net {
    #[pipeline_stage]
    embed: Embed,
    #[pipeline_stage]
    blocks: Blocks,
}

#[forward]
impl Net {
    fn forward(&self, x: &Ids) -> Stream;
}

fn main() {}
