//! Recomputing a single layer saves no memory.

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
    #[recompute]
    head: Linear<Hidden, Vocab>,
}

#[forward]
impl Net {
    fn forward(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.forward(&self.mlp.forward(x))
    }
}

fn main() {}
