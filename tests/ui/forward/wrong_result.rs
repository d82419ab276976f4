//! A result of another type than declared.

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
        self.norm.forward(x).sum(Hidden)
    }
}

fn main() {}
