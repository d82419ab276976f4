//! A stack inside of a layer is saved as a whole.

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
struct Pair {
    mlps: Stack<Mlp>,
}

#[forward]
impl Pair {
    fn forward(&self, x: &Stream) -> Stream {
        self.mlps.forward(x)
    }
}

#[model]
struct Tower {
    #[recompute(save = [mlps.down])]
    pair: Pair,
}

#[forward]
impl Tower {
    fn forward(&self, x: &Stream) -> Stream {
        self.pair.forward(x)
    }
}

fn main() {}
