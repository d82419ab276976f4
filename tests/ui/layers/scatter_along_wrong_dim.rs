//! The result of a row-parallel layer can be scattered along the dim before the last.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

#[model]
struct Mlp {
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row", scatter = Batch)]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Split<Batch, Tp>, Seq, Hidden)> {
        self.down.forward(&self.up.forward(x).gelu())
    }
}

fn main() {}
