//! A gate without the sharding of the layer that it gates, over a sequence-parallel stream.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

#[model]
struct Mlp {
    gate: Linear<Hidden, Ffn>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row", scatter = Seq)]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Stream) -> Stream {
        self.down.forward(&(self.gate.forward(x).silu() * self.up.forward(x)))
    }
}

fn main() {}
