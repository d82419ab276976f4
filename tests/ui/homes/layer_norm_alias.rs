//! A norm over the batch, by an alias.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden }

type OverSamples<N = LayerNorm<Batch>> = N;

#[model]
struct Block {
    norm: OverSamples,
}

#[forward]
impl Block {
    fn forward(&self, x: &Tensor<(Hidden, Batch)>) -> Tensor<(Hidden, Batch)> {
        self.norm.forward(x)
    }
}

fn main() {}
