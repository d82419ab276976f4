//! A row-parallel layer without `scatter`, declared by an alias, on the left of a sum.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

type Down = Linear<Ffn, Hidden>;

#[model]
struct Block {
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row")]
    down: Down,
}

#[forward]
impl Block {
    fn forward(&self, x: &Stream) -> Stream {
        let y = self.down.forward(&self.up.forward(&self.norm.forward(x)).silu());
        let sum = y + x;
        sum
    }
}

fn main() {}
