//! The sum over a split dim is a partial sum.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

#[model]
struct Pool {
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
}

#[forward]
impl Pool {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq)> {
        self.up.forward(x).sum(Ffn).tanh()
    }
}

fn main() {}
