//! The bias of a row-parallel layer is whole, and added after the reduction.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

#[model]
struct Block {
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "row")]
    bias: Bias<Hidden>,
}

#[forward]
impl Block {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
        self.norm.forward(x)
    }
}

fn main() {}
