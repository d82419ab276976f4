//! Several inputs go in a tuple.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

type Stream = Tensor<(Batch, Seq, Hidden)>;

#[model]
struct Block {
    norm: RmsNorm<Hidden>,
}

#[forward]
impl Block {
    fn forward(&self, x: &Stream, y: &Stream) -> Stream {
        self.norm.forward(&(x + y))
    }
}

fn main() {}
