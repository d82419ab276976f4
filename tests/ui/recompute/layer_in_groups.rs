//! `every` on a layer, which is not a stack.

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
struct Net {
    mlp: Mlp,
    #[recompute(every = 2, save = [weight])]
    norm: RmsNorm<Hidden>,
}

#[forward]
impl Net {
    fn forward(&self, x: &Stream) -> Stream {
        self.norm.forward(&self.mlp.forward(x))
    }
}

fn main() {}
