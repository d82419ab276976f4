//! A fold over the layers of a stack.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Stream = Tensor<(Batch, Seq, Hidden)>;

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

#[model]
struct Net {
    blocks: Stack<Mlp>,
}

#[forward]
impl Net {
    fn forward(&self, x: &Stream) -> Stream {
        self.blocks.iter().fold(x.clone(), |x, block| block.forward(&x))
    }
}

fn main() {}
