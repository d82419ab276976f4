//! A norm over a dim that its input does not have.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

#[model]
struct Block {
    norm: LayerNorm<Ffn>,
}

#[forward]
impl Block {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
        self.norm.forward(x)
    }
}

fn main() {}
