//! A partial sum as the input of a recomputed model.

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
    #[sharded(tp = "col")]
    up: Param<(Hidden, Ffn)>,
    #[sharded(tp = "row")]
    down: Param<(Ffn, Hidden)>,
    #[recompute]
    mlp: Mlp,
}

#[forward]
impl Net {
    fn forward(&self, x: &Stream) -> Stream {
        self.mlp.forward(&x.contract(&self.up).gelu().contract(&self.down))
    }
}

fn main() {}
