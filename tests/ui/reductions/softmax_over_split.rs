//! A softmax over the output of a column-parallel layer, by the name of the dim.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn }

#[model]
struct Router {
    #[sharded(tp = "col")]
    gate: Linear<Hidden, Ffn>,
}

impl Router {
    fn weights(&self, x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Split<Ffn, Tp>)> {
        self.gate.forward(x).softmax_over(Ffn)
    }
}

fn main() {}
