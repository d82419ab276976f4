//! A residual stream that is split along the sequence, and a layer that returns a whole one.

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
    fn forward(&self, x: &Sequence) -> Sequence {
        x + self.down.forward(&self.up.forward(x).gelu())
    }
}

fn main() {}
