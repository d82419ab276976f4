//! A parameter into the `forward` of a model.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

#[model]
struct Mlp {
    up: Linear<Hidden, Ffn>,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Tensor<(Seq, Hidden)>) -> Tensor<(Seq, Ffn)> {
        self.up.forward(x)
    }
}

fn run(mlp: &Mlp, queries: &Param<(Seq, Hidden)>) -> Tensor<(Seq, Ffn)> {
    mlp.forward(queries)
}

fn main() {}
