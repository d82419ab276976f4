//! A stack of a struct without `#[model]`.

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
struct Net {
    blocks: Stack<Mlp>,
}

#[forward]
impl Net {
    fn forward(&self, x: &Stream) -> Stream {
        self.blocks.forward(x)
    }
}

fn main() {}
