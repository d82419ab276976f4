//! Terms that are still to be summed over the ranks.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

#[model]
struct Mlp {
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row")]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
        let inside = self.up.forward(x).silu();
        let terms = inside.square().mean(Ffn);
        self.down.forward(&inside).with_auxiliary_loss(&terms)
    }
}

fn main() {}
