//! A softmax over the output of a column-parallel layer.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Gate = Linear<Hidden, Ffn>;

#[model]
struct Router {
    #[sharded(tp = "col")]
    gate: Gate,
}

#[forward]
impl Router {
    fn forward(&self, x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Split<Ffn, Tp>)> {
        self.gate.forward(x).softmax()
    }
}

fn main() {}
