//! A model inside a model is sharded by its own fields.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

#[model]
struct Block {
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "col")]
    inner: Inner,
}

#[forward]
impl Block {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
        self.norm.forward(x)
    }
}

#[model]
struct Inner {
    norm: RmsNorm<Hidden>,
}

fn main() {}
