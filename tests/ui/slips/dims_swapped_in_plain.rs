//! Swapped dims of a layer without sharding.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Stream = Tensor<(Batch, Seq, Hidden)>;

#[model]
struct Mlp {
    up: Linear<Ffn, Hidden>,
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Stream) -> Stream {
        self.down.forward(&self.up.forward(x).silu())
    }
}

fn main() {}
