//! An optional tensor as the input of a layer.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

struct Block {
    norm: RmsNorm<Hidden>,
    memory: Option<Tensor<(Batch, Hidden)>>,
}

impl Block {
    fn forward(&self) -> Tensor<(Batch, Hidden)> {
        self.norm.forward(&self.memory)
    }
}

fn main() {}
