//! A sub-model without `#[model]`.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Stream = Tensor<(Batch, Seq, Hidden)>;

struct Mlp {
    up: Linear<Hidden, Ffn>,
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Stream) -> Stream {
        self.down.forward(&self.up.forward(x).silu())
    }
}

#[model]
struct Block {
    norm: RmsNorm<Hidden>,
    mlp: Mlp,
}

#[forward]
impl Block {
    fn forward(&self, x: &Stream) -> Stream {
        x + self.mlp.forward(&self.norm.forward(x))
    }
}

fn main() {}
