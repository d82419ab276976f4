//! A path of `save` with a missing inner field.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn, Vocab }

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
        self.down.forward(&self.up.forward(x).gelu())
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

#[model]
struct Tower {
    #[recompute(every = 2, save = [norm, mlp.gate])]
    blocks: Stack<Block>,
}

#[forward]
impl Tower {
    fn forward(&self, x: &Stream) -> Stream {
        self.blocks.forward(x)
    }
}

fn main() {}
