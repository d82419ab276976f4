//! A row-parallel layer without `scatter`, along a sequence that is also declared over `cp`.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Hidden, Ffn }

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

#[model]
struct Mlp {
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row")]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Stream) -> Stream {
        self.down.forward(&self.up.forward(x).silu())
    }
}

fn main() {}
