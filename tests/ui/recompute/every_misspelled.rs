//! One typing mistake, one error.

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
struct Tower {
    #[recompute(evry = "sqr")]
    blocks: Stack<Mlp>,
}

#[forward]
impl Tower {
    fn forward(&self, x: &Stream) -> Stream {
        self.blocks.forward(x)
    }
}

fn main() {}
