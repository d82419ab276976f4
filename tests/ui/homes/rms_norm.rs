//! A norm along a split sequence.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Hidden }

#[model]
struct Block {
    norm: RmsNorm<Seq>,
}

#[forward]
impl Block {
    fn forward(&self, x: &Tensor<(Batch, Hidden, Seq)>) -> Tensor<(Batch, Hidden, Seq)> {
        self.norm.forward(x)
    }
}

fn main() {}
