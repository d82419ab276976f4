//! A parameter as the input of a layer.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

#[model]
struct Mlp {
    queries: Param<(Seq, Hidden)>,
    up: Linear<Hidden, Ffn>,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Seq, Ffn)> {
        let _ = x;
        self.up.forward(&self.queries)
    }
}

fn main() {}
