//! `forward` misspelled.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

type Stream = Tensor<(Batch, Seq, Hidden)>;

#[model]
struct Block {
    norm: RmsNorm<Hidden>,
}

#[forward]
impl Block {
    fn foward(&self, x: &Stream) -> Stream {
        self.norm.forward(x)
    }
}

fn main() {}
