//! A module that takes a whole stream, given one that is split along the sequence.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Plain = Tensor<(Batch, Seq, Hidden)>;
type Sequence = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

#[model]
struct Mlp {
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row")]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Plain) -> Plain {
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
    fn forward(&self, x: &Sequence) -> Plain {
        self.mlp.forward(&self.norm.forward(x))
    }
}

fn main() {}
