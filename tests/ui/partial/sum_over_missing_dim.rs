//! A sum over a dim that the tensor does not have.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

#[model]
struct Pool {}

#[forward]
impl Pool {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Hidden)> {
        x.sum(Ffn)
    }
}

fn main() {}
