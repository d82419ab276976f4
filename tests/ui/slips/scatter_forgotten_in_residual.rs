//! A row-parallel layer without `scatter` before the sum with a sequence-parallel stream.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

#[model]
struct Block {
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row")]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Block {
    fn forward(&self, x: &Stream) -> Stream {
        x + self.down.forward(&self.up.forward(&self.norm.forward(x)).silu())
    }
}

fn main() {}
