//! A softmax over what a column-parallel layer writes.

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
