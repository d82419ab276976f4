//! Norms have no column-parallel form.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

#[model]
struct Block {
    #[sharded(tp = "col")]
    norm: RmsNorm<Hidden>,
}

#[forward]
impl Block {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
        self.norm.forward(x)
    }
}

fn main() {}
