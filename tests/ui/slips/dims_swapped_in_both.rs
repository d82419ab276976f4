//! Swapped dims of two layers.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Stream = Tensor<(Batch, Seq, Hidden)>;

#[model]
struct Mlp {
    #[sharded(tp = "col")]
    up: Linear<Ffn, Hidden>,
    #[sharded(tp = "row")]
    down: Linear<Hidden, Ffn>,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Stream) -> Stream {
        self.down.forward(&self.up.forward(x).silu())
    }
}

fn main() {}
