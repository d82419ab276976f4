//! A model with stages and a type parameter.

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
struct Net<E: Layer<Ids, Out = Stream>> {
    #[pipeline_stage]
    embed: E,
    #[pipeline_stage]
    blocks: Stack<Block>,
}

#[forward]
impl<E: Layer<Ids, Out = Stream> + Build> Net<E> {
    fn forward(&self, x: &Ids) -> Stream;
}

fn main() {}
