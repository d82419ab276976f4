//! A linear layer has no vocabulary.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

#[model]
struct Block {
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "vocab")]
    head: Linear<Hidden, Hidden>,
}

#[forward]
impl Block {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
        self.norm.forward(x)
    }
}

fn main() {}
