//! A module applied to an input that is not a tensor.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

type Stream = Tensor<(Batch, Seq, Hidden)>;

#[model]
struct Block {
    norm: RmsNorm<Hidden>,
}

#[forward]
impl Block {
    fn forward(&self, x: &Stream) -> Stream {
        self.norm.forward(x)
    }
}

fn run(block: &Block, tokens: &Tokens<(Batch, Seq)>) -> Stream {
    block.forward(tokens)
}

fn main() {}
